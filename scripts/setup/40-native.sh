# The static C programs that run in and around sandboxes.
title="C programs"
levels=(all test)

inputs() { find native -path native/build -prune -o -type f -print | LC_ALL=C sort; }
is_present() { [[ -x native/build/coppice-agent && -x native/build/coppice-tree ]]; }
install() { make -C native --no-print-directory -j "$(nproc)"; }
