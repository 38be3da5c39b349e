# The bundles that bin/coppice, bin/jvs and the daemon start from.
title="bundles"
levels=(client all test)

inputs() { find packages/*/src packages/*/package.json packages/web/tsconfig.json scripts/{build,bundle-jvs,bundle-web}.ts package-lock.json .node-version -type f | LC_ALL=C sort; }
is_present() { [[ -e dist/coppice.mjs && -e dist/jvs.mjs && -e dist/daemon.mjs && -e dist/web/index.html ]]; }
install() { scripts/build; }
