# The C programs once more, with AddressSanitizer and UBSan: part of the tests runs with them (vitest.config.ts).
# Optional: where this compiler has no sanitizers those tests are left out, and one says why.
title="C programs with sanitizers"
levels=(test)
optional=yes

place=.tools/native-sanitized

inputs() { find native -path native/build -prune -o -type f -print | LC_ALL=C sort; }
is_present() { [[ -x $place/coppice-tree ]]; }

install() {
  mkdir -p "$place/reports"
  make -C native --no-print-directory -j "$(nproc)" SANITIZE=1 BUILD="$PWD/$place" || {
    rm -f "$place"/coppice-*
    echo "they could not be built; the log is in .tools/log/41-test-native.log"
    return 1
  }
}
