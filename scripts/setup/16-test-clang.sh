# The compiler with libFuzzer, for the tests of the C programs. Optional: without it those tests are skipped, with the reason.
title="clang for the tests"
levels=(test)
optional=yes
source scripts/lib/debian-packages.sh

needs=(
  clang:clang
)

can_fuzz() { clang -fsanitize=fuzzer -x c -o /dev/null - <<<'int LLVMFuzzerTestOneInput(const char *data, unsigned long size) { return data && size > 9; }' 2>/dev/null; }

inputs() { (. /etc/os-release && echo "$ID ${VERSION_CODENAME:-}"); }
is_present() { command -v clang >/dev/null; }

install() {
  can_fuzz && return
  install_packages "${needs[@]}"
  can_fuzz || apt_get install --yes --no-install-recommends libclang-rt-dev
  can_fuzz || { echo "clang has no fuzzer here"; return 1; }
}
