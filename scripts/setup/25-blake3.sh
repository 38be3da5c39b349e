# BLAKE3 in C as its authors wrote it, with their assembly for each processor: jvs and the pool are built with it. It comes from
# a package of the npm registry that carries the sources, unpacked without what that package depends on.
title="BLAKE3"
levels=(client all test)

package=@c4312/blake3-native@3.0.0
digest=6e8162da74155b86efadcef1b2c617d6dc42f06676e841281867e33143a1937e
place=.tools/blake3

inputs() { echo "$package $digest"; }
is_present() { [[ -e $place/blake3.c ]]; }

install() {
  local archive found
  rm -rf "$place.new"
  mkdir -p "$place.new"
  npm pack "$package" --silent --pack-destination "$place.new"
  archive=$(echo "$place".new/*.tgz)
  found=$(sha256sum "$archive" | cut -d' ' -f1)
  if [[ $found != "$digest" ]]; then
    echo "The archive of $package is not the one that is expected here: $found"
    return 1
  fi
  tar -xzf "$archive" -C "$place.new" --strip-components=2 package/c
  rm "$archive"
  rm -rf "$place"
  mv "$place.new" "$place"
}
