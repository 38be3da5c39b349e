#!/usr/bin/env bash
# Runs the set-up steps of a level (client, all, test) in order, one process at a time, and shows progress.
#
# A step is a file scripts/setup/NN-name.sh that defines
#   title          what the progress line calls it
#   levels         the levels it belongs to
#   optional       (may be absent) `yes`: when it fails the rest goes on, and the reason is shown
#   inputs         function: prints the files that its product depends on, and any other facts, one per line
#   is_present     function: succeeds when the product is there; asked every time, so it must be quick
#   install        function: makes the product; its output goes to .tools/log/<step>.log
set -euo pipefail
level=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
# Debian keeps nft, mkfs.btrfs and others out of an ordinary user's PATH.
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

if ! mkdir -p .tools/stamps .tools/log 2>/dev/null || [[ ! -w .tools/stamps ]]; then
  echo "coppice: set-up is not complete, and $root cannot be written by $(id -un)." >&2
  echo "hint: run the same command once as the owner of that directory: $(stat -c %U .)" >&2
  exit 77
fi

# Two commands started together set up once: the second waits here, then finds everything done.
exec 9>.tools/setup.lock
if ! flock -n 9; then
  echo "coppice: waiting for another set-up of this checkout to end" >&2
  flock 9
fi

# The one product that lies among inputs: made later, it would make them look edited, and the next start slow.
mkdir -p native/build
# Made before the steps look at their inputs: what is edited while they run is newer than this mark.
mark=$(mktemp .tools/stamps/.mark-XXXXXX)
ticker=
cleanup() {
  [[ -z $ticker ]] || kill "$ticker" 2>/dev/null || true
  rm -f "$mark"
}
trap cleanup EXIT

steps=()
for file in scripts/setup/[0-9]*.sh; do
  levels=$(source "$file" && echo " ${levels[*]} ")
  [[ $levels == *" $level "* ]] && steps+=("$file")
done

# Digest of the step itself and of everything that it names: file contents, and plain facts as they are.
digest_of_inputs() {
  { sha256sum "$1"; inputs | while IFS= read -r input; do
      if [[ -f $input ]]; then sha256sum "$input"; else echo "$input"; fi
    done; } | sha256sum | cut -c1-64
}

show_ticking() { # line, seconds counted up while a long step runs; terminals only
  local began=$SECONDS
  while sleep 1; do printf '\r%s %d s ' "$1" $((SECONDS - began)) >&2; done
}

run_step() { # file, number
  local name stamp digest line log began
  name=$(basename "$1" .sh)
  stamp=.tools/stamps/$name
  log=.tools/log/$name.log
  optional=no
  source "$1"
  digest=$(digest_of_inputs "$1")
  if [[ -e $stamp && $(<"$stamp") == "$digest" ]] && is_present; then return 0; fi

  line="[$2/${#steps[@]}] $title …"
  printf '%s' "$line" >&2
  if [[ -t 2 ]]; then
    show_ticking "$line" 9>&- &
    ticker=$!
  fi
  began=$SECONDS
  local outcome=0
  # A shell of its own, as `set -e` is deaf in any shell whose outcome is being asked for.
  bash -euo pipefail -c 'source "$1"; install' step "$1" >"$log" 2>&1 </dev/null 9>&- || outcome=$?
  if [[ -n $ticker ]]; then
    kill "$ticker" 2>/dev/null || true
    wait "$ticker" 2>/dev/null || true
    ticker=
    printf '\r%s' "$line" >&2
  fi

  if [[ $outcome == 0 ]]; then
    printf ' %d s  \n' $((SECONDS - began)) >&2
    digest_of_inputs "$1" >"$stamp"
  elif [[ $optional == yes ]]; then
    printf ' left out: %s\n' "$(tail -n 1 "$log")" >&2
    # Not tried again at every start, only when its inputs change; `rm -r .tools/stamps` forgets it.
    echo "$digest" >"$stamp"
  else
    printf ' failed after %d s\n' $((SECONDS - began)) >&2
    tail -n 40 "$log" | sed 's/^/    /' >&2
    echo "coppice: set-up stopped at \"$title\"; the whole log is in $root/$log" >&2
    return 1
  fi
}

number=0
for file in "${steps[@]}"; do
  number=$((number + 1))
  run_step "$file" "$number" || exit 1
done

# A level holds the ones before it.
case $level in
  client) complete=(client) ;;
  all) complete=(client all) ;;
  test) complete=(client all test) ;;
esac
for done_level in "${complete[@]}"; do cp -p "$mark" ".tools/stamps/ready-$done_level"; done
