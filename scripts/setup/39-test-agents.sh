# Agents from npm, which the tests really run: with a lock of their own, and large. Optional: without them those tests are skipped,
# with the reason.
title="Agents for the tests"
levels=(test)
optional=yes

place=tests/agents/toolbox

inputs() { printf '%s\n' "$place"/package.json "$place"/package-lock.json .npmrc .node-version; }
is_present() { [[ -e $place/node_modules/.package-lock.json ]]; }

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
