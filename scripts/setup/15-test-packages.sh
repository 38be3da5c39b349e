# What only the tests run on.
title="Debian packages for the tests"
levels=(test)
source scripts/lib/debian-packages.sh

needs=(
  xfsprogs:mkfs.xfs     # a filesystem with reflinks
  e2fsprogs:mkfs.ext4   # one without
  acl:setfacl           # fidelity of copies
  attr:setfattr
  libcap2-bin:setcap
  procps:ps
  python3:python3       # programs inside sandboxes, and the Python client
  python3-pip:/usr/lib/python3/dist-packages/pip/__init__.py
  jq:jq                 # the shell loops of the workspace guide
  openssl:openssl       # a certificate for a daemon behind TLS
  curl:curl             # the examples of the API reference
  wget:wget             # a program that reads the store of the system alone
  skopeo:skopeo         # what others make of images, to compare with
  umoci:umoci
  buildah:buildah       # always with runc: its chroot isolation isolates nothing
  runc:runc
  chromium:chromium     # the page is tested in a real browser
  fonts-dejavu-core:/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
)

inputs() { :; }
is_present() { [[ -z $(missing_packages "${needs[@]}") ]]; }
install() { install_packages "${needs[@]}"; }
