# A Linux that runs as a process: with it the tests see a kernel whose cgroups are of version 2 alone, whatever this machine
# has. Nothing of it is installed. Optional: without it that test is skipped, with the reason.
title="User-mode Linux for the tests"
levels=(test)
optional=yes
source scripts/lib/debian-packages.sh

place=.tools/uml

inputs() { (. /etc/os-release && echo "$ID ${VERSION_CODENAME:-}"); }
is_present() { [[ -x $place/usr/bin/linux.uml ]]; }

install() {
  local work=$PWD/$place.new
  rm -rf "$place" "$work"
  mkdir -p "$work"
  apt_get update
  (cd "$work" && apt_get -o APT::Sandbox::User= download user-mode-linux) || { echo "it cannot be had from the mirror of this machine"; return 1; }
  dpkg-deb --extract "$work"/user-mode-linux_*.deb "$work"
  rm -rf "$work"/user-mode-linux_*.deb "$work/usr/lib" "$work/usr/share"
  mv "$work" "$place"
}
