# A registry of images, which the tests pull from and push to. Unpacked and not installed: the package would start it as a service
# of this machine, open to its network. Optional: without it those tests are skipped, with the reason.
title="A registry for the tests"
levels=(test)
optional=yes
source scripts/lib/debian-packages.sh

place=.tools/docker-registry

inputs() { (. /etc/os-release && echo "$ID ${VERSION_CODENAME:-}"); }
is_present() { [[ -x $place/usr/bin/docker-registry ]]; }

install() {
  local work=$PWD/$place.new
  rm -rf "$place" "$work"
  mkdir -p "$work"
  apt_get update
  (cd "$work" && apt_get -o APT::Sandbox::User= download docker-registry) || { echo "it cannot be had from the mirror of this machine"; return 1; }
  dpkg-deb --extract "$work"/docker-registry_*.deb "$work"
  rm -rf "$work"/docker-registry_*.deb "$work"/{etc,lib,usr/lib,usr/share}
  mv "$work" "$place"
}
