# The npm packages of the committed lock. `npm ci` would insist on optional packages for other platforms, which
# not every mirror of the registry holds; this installs the same versions and integrities without that.
title="npm packages"
levels=(client all test)

inputs() { printf '%s\n' package.json package-lock.json .npmrc .node-version packages/*/package.json; }
is_present() { [[ -e node_modules/.package-lock.json && -x node_modules/.bin/esbuild ]]; }

install() {
  local before after
  before=$(sha256sum package-lock.json)
  npm install --no-save --include=dev --ignore-scripts --no-audit --no-fund --prefer-offline
  after=$(sha256sum package-lock.json)
  if [[ $before != "$after" ]]; then
    echo "package-lock.json does not fit package.json: npm changed it. Commit a lock that fits."
    return 1
  fi
}
