# The fuzzers of native/fuzz. Optional: without clang the tests that run them are skipped, with the reason.
title="fuzzers"
levels=(test)
optional=yes

place=.tools/native-fuzzers

inputs() {
  find native -path native/build -prune -o -path native/fuzz/corpus -prune -o -type f -print | LC_ALL=C sort
  command -v clang || true
}
is_present() { [[ -x $place/fuzz-json ]]; }

install() {
  command -v clang >/dev/null || { echo "there is no clang"; return 1; }
  make -C native --no-print-directory -j "$(nproc)" fuzzers BUILD="$PWD/$place" || {
    rm -f "$place"/fuzz-*
    echo "they could not be built; the log is in .tools/log/42-test-fuzzers.log"
    return 1
  }
}
