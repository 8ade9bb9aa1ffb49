#include "drivers/ssh/programs.h"

namespace orrery::drivers {

// A path of a job may lead through folders that another user of the host controls. That user can replace a name in such a folder by
// a symbolic link at any instant, so nothing here acts as root on a name that was only checked before:
// - a path is entered folder by folder; a link on the way must belong to root or to the user who runs this program;
// - new content is written in a private folder beside the target and renamed over it, which replaces a link and does not follow it;
// - an existing file in such a folder is opened once, compared with its name, and then used by its descriptor.
// A link at the end of a path is followed only where the job has `follow`. Errors are in the variable `error`.
const char* const files_program = R"sh(
enter() { # folder, 1: any link is followed, 1: missing folders are created. Returns 2 where a folder is missing
  case $1 in /*) cd / ;; esac
  me=${me:-$(id -u)} rest=${1#/}/ links=0
  while [ -n "$rest" ]; do
    part=${rest%%/*} rest=${rest#*/} above=${PWD%/}
    case $part in '' | .) continue ;; esac
    if [ -L "./$part" ]; then
      link_owner=$(stat -c %u -- "./$part") links=$((links + 1))
      if [ "$2" != 1 ] && [ "$link_owner" != 0 ] && [ "$link_owner" != "$me" ]; then
        error="$above/$part is a symbolic link that belongs to user $link_owner; it is followed only with follow: true"; return 1
      fi
      if [ "$links" -gt 40 ]; then error="$above/$part: too many symbolic links"; return 1; fi
      part=$(readlink -- "./$part"); case $part in /*) cd / ;; esac
      rest=$part/$rest; continue
    fi
    if [ ! -e "./$part" ]; then
      if [ "$3" != 1 ]; then error="there is no folder $above/$part; create it first, with a file block of state: directory"; return 2; fi
      error=$(mkdir -- "./$part" 2>&1) || return 1
    fi
    cd -P "./$part" 2>/dev/null || { error="$above/$part is not a folder, or may not be entered"; return 1; }
    if [ "$part" != .. ] && [ "$PWD" != "$above/$part" ]; then error="$above/$part was replaced while it was entered"; return 1; fi
  done
}
find_file() { # path, 1: a link there is followed. Enters its folder; $name is the file in it
  name=${1##*/} links=0
  enter "${1%/*}/" "$2" || return
  while [ -L "./$name" ]; do
    if [ "$2" != 1 ]; then error="$1 is a symbolic link; with follow: true the file it points to is changed"; return 1; fi
    links=$((links + 1)); if [ "$links" -gt 40 ]; then error="$1: too many symbolic links"; return 1; fi
    target=$(readlink -- "./$name") name=${target##*/}
    case $target in */*) enter "${target%/*}/" 1 || return ;; esac
  done
}
folder_is_safe() { # only root and the user who runs this can replace names in the working folder
  set -- $(stat -c '%u %a' .)
  [ "$1" = 0 ] || [ "$1" = "$me" ] || return 1
  case $2 in *[2367][0-7] | *[2367]) return 1 ;; esac
}
pin_file() { # sets `file`: a path at which the existing file $name stays the same file
  file=./$name
  folder_is_safe && return 0
  if [ -f "./$name" ] && [ ! -L "./$name" ] && { command exec 4<"./$name"; } 2>/dev/null &&
    [ "$(readlink /proc/self/fd/4)" = "${PWD%/}/$name" ] && [ "$(stat -L -c %h /proc/self/fd/4)" = 1 ]; then
    file=/proc/self/fd/4; return 0
  fi
  error="$PWD/$name is in a folder of another user and is not a plain file with one name"; return 1
}
enter_staging() { # a private folder beside $name; the new file is ./new in it
  staging=$(mktemp -d ./.orrery.XXXXXXXXXX 2>&1) || { error="cannot write to $PWD: $staging"; return 1; }
  cd -P "$staging" 2>/dev/null && [ "$(stat -c '%u %a' .)" = "$me 700" ] || { error="$PWD/$staging was replaced"; return 1; }
}
leave_staging() { rm -f ./new; cd .. && rmdir "$staging" 2>/dev/null; }
install_staged() { # mode owner group: of ./new, which becomes $name
  error=$(set_attributes ./new "$1" "$2" "$3" 2>&1 && mv -f -T ./new "../$name" 2>&1); status=$?
  leave_staging
  return "$status"
}
keep_attributes() { # mode owner group: empty ones become those of $file
  mode=${1:-$(stat -L -c %a "$file")} owner=${2:-$(stat -L -c %u "$file")} group=${3:-$(stat -L -c %g "$file")}
}
compare_attributes() { # file mode owner group: sets `differences`
  differences=
  [ -n "$2$3$4" ] || return 0
  current=$(stat -L -c '%a %U %u %G %g' "$1")
  want_mode=$2 want_owner=$3 want_group=$4
  set -- $current
  if [ -n "$want_mode" ] && [ "$want_mode" != "$1" ]; then differences="$differences, mode $1 -> $want_mode"; fi
  if [ -n "$want_owner" ] && [ "$want_owner" != "$2" ] && [ "$want_owner" != "$3" ]; then differences="$differences, owner $2 -> $want_owner"; fi
  if [ -n "$want_group" ] && [ "$want_group" != "$4" ] && [ "$want_group" != "$5" ]; then differences="$differences, group $4 -> $want_group"; fi
  differences=${differences#, }
}
set_attributes() { # file mode owner group; the file is a path that no other user can replace
  if [ -n "$3" ]; then chown -- "$3" "$1" || return 1; fi
  if [ -n "$4" ]; then chgrp -- "$4" "$1" || return 1; fi
  if [ -n "$2" ]; then chmod -- "$2" "$1" || return 1; fi
}
)sh";

} // namespace orrery::drivers
