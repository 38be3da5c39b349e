# Sourced by the set-up steps that need Debian packages.
# A need is `package:probe`; the probe is a command, or a file when it begins with a slash. Asking for the
# product and not for the package lets any distribution be used that has it.

need_is_met() {
  local probe=${1#*:}
  if [[ $probe == /* ]]; then [[ -e $probe ]]; else command -v "$probe" >/dev/null; fi
}

missing_packages() { # needs… → packages
  local need
  for need in "$@"; do need_is_met "$need" || echo "${need%%:*}"; done
}

install_packages() { # needs…
  local missing
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  if ! command -v apt-get >/dev/null; then
    echo "These Debian packages, or what your distribution calls them, are needed: ${missing[*]}"
    return 1
  fi
  if [[ $(id -u) != 0 ]]; then
    echo "These Debian packages are missing, and only root can install them: ${missing[*]}"
    echo "Run as root: apt-get install --no-install-recommends ${missing[*]}"
    return 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt_get update
  apt_get install --yes --no-install-recommends "${missing[@]}"
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]} == 0)) || { echo "Installed, and still not found: ${missing[*]}"; return 1; }
}

# Waits for another apt instead of failing beside it, and tries a broken download again.
apt_get() { apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@"; }

# The mirror that this machine is configured with. Asked of apt itself, which knows every form that its sources may be written in.
mirror_of() { # codename
  apt-get indextargets --format '$(CREATED_BY)|$(RELEASE)|$(COMPONENT)|$(REPO_URI)' |
    awk -F'|' -v suite="$1" '$1 == "Packages" && $2 == suite && $3 == "main" { print $4; exit }'
}
