# Real peers that are written in Go, built once into a folder by package name; sourced by the scripts that bring them. Needs go and jq.
#
#   go_peers FOLDER                                        begins: where they go ($peers/bin/NAME), one cache of modules and one of builds for all
#   go_peer_module NAME MODULE VERSION PACKAGE [SUMS...]   makes $peers/src/NAME, from which `go build PACKAGE` works
#   go_peer_build NAME PACKAGE                             builds it there, into $peers/bin/NAME
#
# Why a module of ours: a peer's own go.mod points into its source tree with `replace` lines, which `go install` refuses. Ours requires the peer instead, and
# starts from the sums that are shipped inside the verified archive (and in those of SUMS, MODULE@VERSION), so that every dependency is held to what its makers pinned.

go_peers() {
  peers=$(mkdir -p "$1/bin" && cd "$1" && pwd)
  export GOMODCACHE=${GOMODCACHE:-$peers/mod} GOCACHE=${GOCACHE:-$peers/cache} GOTOOLCHAIN=local GOFLAGS="-modcacherw -buildvcs=false"
  PATH=$PATH:/usr/local/go/bin
}

go_peers_possible() { command -v go >/dev/null && command -v jq >/dev/null; }

go_peer_module() {
  local name=$1 module=$2 version=$3 package=$4; shift 4
  mkdir -p "$peers/src/$name"; cd "$peers/src/$name"
  [ ! -s ready ] || return 0
  local source upstream sums; source=$(go mod download -json "$module@$version" | jq -r .Dir); sums=$source/go.sum
  local more; for more in "$@"; do sums="$sums $(go mod download -json "$more" | jq -r .Dir)/go.sum"; done
  upstream=$(go mod edit -json "$source/go.mod")
  { echo "module peers/$name"; echo "go $(jq -r .Go <<<"$upstream")"; echo "require $module $version"
    jq -r '.Replace[]? | select(.New.Path | startswith(".") | not) | "replace \(.Old.Path) \(.Old.Version // "") => \(.New.Path) \(.New.Version)"' <<<"$upstream"
    jq -r '.Exclude[]? | "exclude \(.Path) \(.Version)"' <<<"$upstream"; } >go.mod
  printf '//go:build tools\n\npackage tools\n\nimport _ "%s"\n' "$package" >tools.go
  # shellcheck disable=SC2086
  sort -u $sums >go.sum
  go mod tidy
  echo yes >ready
}

go_peer_build() { cd "$peers/src/$1"; nice -n 5 go build -ldflags "-s -w" -o "$peers/bin/$1" "$2"; }
