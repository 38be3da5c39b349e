# CRIU 4, with which containers keep their memory. It runs beside the machine's own libraries, with a loader and libraries of its
# own, and nothing of it is installed. Optional: without it everything else works, `coppice doctor` says what is missing, and the
# tests that need it are skipped, with the reason.
title="CRIU"
levels=(all test)
optional=yes
source scripts/lib/debian-packages.sh

place=.tools/criu
# The first release of Debian with version 4.2: older ones do not know the sockets of Linux 6.16 and later.
suite=forky

inputs() { (. /etc/os-release && echo "$ID ${VERSION_CODENAME:-}"); }
is_present() { :; }

install() {
  local root=$PWD/$place work=$PWD/$place.new uri loader package
  rm -rf "$work"
  uri=$(mirror_of "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")")
  [[ -n $uri ]] || { echo "no Debian source is configured here that CRIU 4 could come from"; return 1; }
  mkdir -p "$work"/{lists/partial,archives/partial,files}
  : >"$work/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $suite main" >"$work/sources.list"
  apt_beside "$work" update || { echo "$suite cannot be had from the mirror of this machine"; return 1; }
  apt_beside "$work" install --yes --no-install-recommends --download-only criu
  for package in "$work"/archives/*.deb; do dpkg-deb --extract "$package" "$work/files"; done
  loader=$(find "$work/files" -name 'ld-linux*.so.*' | head -n 1)
  write_starter "$work" "${loader#"$work"/}"
  rm -rf "$work"/{lists,archives,status,sources.list}
  "$work/criu" --version
  "$work/criu" check
  # Only now: tests of another run may be using the one that is there.
  rm -rf "$root"
  mv "$work" "$root"
}

# With lists, keys and a state of its own: what the machine has installed is not looked at and not changed.
apt_beside() { # directory, arguments…
  local work=$1
  shift
  apt_get -o Dir::State::status="$work/status" -o Dir::State::lists="$work/lists" -o Dir::Cache="$work" \
    -o Dir::Cache::archives="$work/archives" -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null -o APT::Sandbox::User= -o Acquire::Languages=none \
    -o Debug::NoLocking=1 "$@"
}

# By the loader, which also knows where the libraries are: beside itself.
write_starter() { # directory, loader below it
  cat >"$1/criu" <<STARTER
#!/bin/sh
here=\$(dirname "\$0")
exec "\$here/$2" --library-path "\$here/$(dirname "$2")" "\$here/files/usr/sbin/criu" "\$@"
STARTER
  chmod 755 "$1/criu"
}
