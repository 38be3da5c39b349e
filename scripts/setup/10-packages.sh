# What the daemon and its sandboxes run on.
title="Debian packages"
levels=(all test)
source scripts/lib/debian-packages.sh

needs=(
  bubblewrap:bwrap         # starts containers
  btrfs-progs:mkfs.btrfs   # makes the storage pool
  iproute2:ip              # network of a sandbox
  nftables:nft             # its policy
  git:git                  # repositories of the forge
  mount:losetup            # loop devices below the pool
  gcc:cc                   # builds the C programs
  make:make
  libc6-dev:/usr/include/stdio.h
  musl-tools:musl-gcc      # links the agent, which starts with every sandbox
)

inputs() { :; }
is_present() { [[ -z $(missing_packages "${needs[@]}") ]]; }
install() { install_packages "${needs[@]}"; }
