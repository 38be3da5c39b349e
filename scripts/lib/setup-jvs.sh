#!/usr/bin/env bash
# What `bin/jvs` needs in a checkout that nobody has set up, and nothing else: Node, coppice-tree, and a bundle. The bundle takes two
# npm packages, of the versions and with the integrities of package-lock.json. All messages go to stderr.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec >&2
mkdir -p .tools
# Two commands started together set up once.
exec 9>.tools/setup.lock
flock 9
# For node_package and hex_to_base64.
source scripts/setup/20-node.sh

say() { printf 'jvs: setting up %s\n' "$1"; }

# Prints a field of a package in package-lock.json.
locked() {
  .tools/node/bin/node -p "require('./package-lock.json').packages['node_modules/$1'].$2"
}

# Unpacks a package into .tools/jvs/node_modules.
fetch() {
  local version place archive digest
  version=$(locked "$1" version)
  place=.tools/jvs/node_modules/$1
  [[ ! -e $place/package.json || $(.tools/node/bin/node -p "require('./$place/package.json').version") != "$version" ]] || return 0
  rm -rf "$place" .tools/jvs/archive
  mkdir -p "$place" .tools/jvs/archive
  npm pack "$1@$version" --silent --pack-destination .tools/jvs/archive >/dev/null
  archive=$(echo .tools/jvs/archive/*.tgz)
  digest=sha512-$(sha512sum "$archive" | cut -d' ' -f1 | hex_to_base64)
  if [[ $digest != "$(locked "$1" integrity)" ]]; then
    echo "jvs: the archive of $1 $version is not the one that package-lock.json names: $digest"
    exit 1
  fi
  tar -xzf "$archive" -C "$place" --strip-components=1
  rm -r .tools/jvs/archive
}

# One of the steps of a whole set-up, where its product is missing.
step() {
  (source "$1"; is_present) || { say "$2"; bash -euo pipefail -c 'source "$1"; install' step "$1"; }
}

step scripts/setup/20-node.sh Node
step scripts/setup/25-blake3.sh BLAKE3
if [[ ! -x native/build/coppice-tree || native/tree -nt native/build/coppice-tree ]]; then
  say coppice-tree
  make -s -C native build/coppice-tree
  touch -c native/build/coppice-tree
fi
esbuild=@esbuild/${node_package#node-}
say "the program"
fetch "$esbuild"
fetch diff
mkdir -p .tools/jvs/node_modules/@coppice
for package in packages/*/; do ln -sfn "$PWD/$package" ".tools/jvs/node_modules/@coppice/$(basename "$package")"; done
NODE_PATH=$PWD/.tools/jvs/node_modules ".tools/jvs/node_modules/$esbuild/bin/esbuild" packages/workspaces/src/cli/main.ts --bundle \
  --platform=node --format=esm --target=node24 --legal-comments=none --log-level=warning --outfile=dist/jvs.mjs
