# Sourced by the commands in bin/ and scripts/: makes sure that what they need is installed and built.
#
#   coppice_root=/path/to/checkout; source "$coppice_root/scripts/lib/ensure-setup.sh"
#   ensure_setup client   what a client needs: Node, npm packages, bundles. Needs no root and no Debian package
#   ensure_setup all      and what the daemon needs: Debian packages, C programs, gVisor where it can be had
#   ensure_setup test     and what only the tests need
#
# When everything is current this costs one `find`. All messages go to stderr: stdout belongs to the command.

# Whatever a step depends on. A file or directory newer than the mark of the last complete set-up sends us to
# the steps, which compare digests, so that a fresh `git checkout` of the same content installs nothing again.
_setup_is_current() {
  local mark=$coppice_root/.tools/stamps/ready-$1 inputs newer
  [[ -e $mark && -x $coppice_root/.tools/node/bin/node && -e $coppice_root/dist/coppice.mjs ]] || return 1
  inputs=("$coppice_root"/{package.json,package-lock.json,.npmrc,.node-version,scripts/setup,scripts/lib,scripts/build.ts}
    "$coppice_root"/packages/*/{package.json,src})
  if [[ $1 != client ]]; then
    [[ -d $coppice_root/native/build ]] || return 1
    inputs+=("$coppice_root/native")
  fi
  newer=$(find "${inputs[@]}" -path "$coppice_root/native/build" -prune -o -newer "$mark" -print -quit) || return 1
  [[ -z $newer ]]
}

ensure_setup() {
  _setup_is_current "$1" || bash "$coppice_root/scripts/lib/run-steps.sh" "$1"
}
