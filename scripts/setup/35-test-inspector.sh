# The inspector of MCP, for one test of its command line. With a lock of its own: it brings more packages than all the rest.
title="MCP inspector for the tests"
levels=(test)

place=tests/mcp/inspector

inputs() { printf '%s\n' "$place"/package.json "$place"/package-lock.json .npmrc .node-version; }
is_present() { [[ -e $place/node_modules/@modelcontextprotocol/inspector/package.json ]]; }

install() {
  local before after
  before=$(sha256sum "$place/package-lock.json")
  npm install --prefix "$place" --no-save --ignore-scripts --no-audit --no-fund --prefer-offline
  after=$(sha256sum "$place/package-lock.json")
  if [[ $before != "$after" ]]; then
    echo "$place/package-lock.json does not fit its package.json: npm changed it. Commit a lock that fits."
    return 1
  fi
}
