# The compiler with libFuzzer and clang-tidy, for the tests of the C programs. Optional: without them those tests are skipped, with the reason.
title="clang for the tests"
levels=(test)
optional=yes
source scripts/lib/debian-packages.sh

needs=(
  clang:clang
  clang-tidy:clang-tidy
)

can_fuzz() { clang -fsanitize=fuzzer -x c -o /dev/null - <<<'int LLVMFuzzerTestOneInput(const char *data, unsigned long size) { return data && size > 9; }' 2>/dev/null; }

inputs() { (. /etc/os-release && echo "$ID ${VERSION_CODENAME:-}"); }
is_present() { command -v clang >/dev/null && command -v clang-tidy >/dev/null; }

install() {
  install_packages "${needs[@]}"
  can_fuzz || apt_get install --yes --no-install-recommends libclang-rt-dev
  can_fuzz || { echo "clang has no fuzzer here"; return 1; }
}
