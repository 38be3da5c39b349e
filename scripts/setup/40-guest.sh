# The static C programs that run in and around sandboxes.
title="guest programs"
levels=(all test)

inputs() { find guest -path guest/build -prune -o -type f -print | LC_ALL=C sort; }
is_present() { [[ -d guest/build ]]; }
install() { make -C guest --no-print-directory -j "$(nproc)"; }
