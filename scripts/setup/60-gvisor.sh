# runsc, for sandboxes whose memory can be branched. Optional: without it everything else works, and
# `coppice doctor` says what is missing.
title="gVisor (runsc)"
levels=(all test)
optional=yes
source scripts/lib/debian-packages.sh

backports_source=/etc/apt/sources.list.d/coppice-backports.sources
backports_pin=/etc/apt/preferences.d/coppice-runsc

# Older releases restore no checkpoint into a root at another path.
oldest_release=20240101

# Debian says `0.0~20240729.0`, upstream `release-20240729.0`.
date_in() { grep -oE '\b20[0-9]{6}\b' | head -n 1 || true; }
runsc_release() { { runsc --version 2>/dev/null || true; } | date_in; }
candidate_release() { apt-cache policy runsc | grep Candidate: | date_in; }
is_recent() { [[ -n $1 && $1 -ge $oldest_release ]]; }

# Tried again when root comes along, or when a runsc appears, changes or goes.
inputs() { id -u; command -v runsc || echo none; runsc_release; }
is_present() { :; }

install() {
  if is_recent "$(runsc_release)"; then return 0; fi
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "only root can install it, from Debian packages; put a runsc of your own on PATH instead"
    return 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  if ! is_recent "$(candidate_release)"; then enable_backports; fi
  if ! apt_get update || ! is_recent "$(candidate_release)"; then
    rm -f "$backports_source" "$backports_pin"
    echo "no Debian package of runsc from $oldest_release or later can be had here"
    return 1
  fi
  apt_get install --yes --no-install-recommends runsc
  is_recent "$(runsc_release)" || { echo "the installed runsc does not answer"; return 1; }
}

# Takes the mirror that the machine is configured with, so that no host is named here, and lets apt have
# nothing but runsc from backports.
enable_backports() {
  local codename uri keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  uri=$(mirror_of "$codename")
  if [[ -z $uri ]]; then
    echo "no Debian source for \"$codename\" is configured here"
    return 1
  fi
  cat >"$backports_pin" <<PIN
Package: *
Pin: release n=$codename-backports
Pin-Priority: 1

Package: runsc
Pin: release n=$codename-backports
Pin-Priority: 600
PIN
  cat >"$backports_source" <<SOURCE
Types: deb
URIs: $uri
Suites: $codename-backports
Components: main
SOURCE
  [[ ! -e $keyring ]] || echo "Signed-By: $keyring" >>"$backports_source"
}
