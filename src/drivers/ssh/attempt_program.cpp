#include "drivers/ssh/programs.h"

namespace orrery::drivers {

// $1 what to do, $2 the attempt's id (for a start: its folder's name), $3 a word nobody else knows, $4 $5 how far output and errors
// were kept, $6 the runner's program. A folder that holds "fenced" is one in which nothing ran or will run, whatever start arrives
// late; the next try of the same id is in ID.1. The last line of standard error is "$3 WORD ..." and says how it stands. Nothing in
// here comes from a job.
const char* const attempt_program = R"sh(
umask 077
what=$1 id=$2 word=$3 o=$4 e=$5 runner=$6
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
base=${HOME:-/root}/.orrery/attempts d=$base/$id
g=0
current() { g=0 d=$base/$id; while [ -e "$d/fenced" ]; do g=$((g + 1)); d=$base/$id.$g; done; }
fence() { # nobody was here; and nobody who comes late shall run it
  mkdir -p "$base" 2>/dev/null
  if mkdir "$d" 2>/dev/null; then { : >"$d/claim" && : >"$d/fenced"; } 2>/dev/null || cannot "write to $base"; return 0; fi
  [ -d "$d" ] || cannot "make a folder in $base"
  return 1
}
say() { printf '\n%s %s\n' "$word" "$*" >&2; exit 0; }
full() { set -- $(df -Pk "$base" 2>/dev/null | tail -n 1); [ "${4:-1}" -lt 8 ]; }
cannot() { if full; then say nospace "$base"; else say cannot "$1"; fi; }
rc() { r= s=; read -r r s 2>/dev/null <"$d/rc" && [ "$s" = ok ]; }
born() { l=; read -r l 2>/dev/null <"/proc/$1/stat" || return 1; l=${l##*) }; set -- $l; [ "$1" != Z ] && b=${20}; }
alive() {
  p= t= k= s=; read -r p t k s 2>/dev/null <"$d/pid"; [ "$s" = ok ] || return 1
  read -r now </proc/sys/kernel/random/boot_id; [ "$k" = "$now" ] || { why=rebooted; return 1; }
  b=; born "$p" && [ "$b" = "$t" ] || { why=killed; return 1; }
}
claim() { (set -C; : >"$d/claim") 2>/dev/null; }
piece() { tail -c "+$(($2 + 1))" "$d/$1" 2>/dev/null | head -c "$(($3 - $2))"; }
emit() {
  if [ -s "$d/out" ]; then n=$(wc -c <"$d/out"); if [ "$n" -gt "$o" ]; then piece out "$o" "$n"; o=$((n)); fi; fi
  if [ -s "$d/err" ]; then n=$(wc -c <"$d/err"); if [ "$n" -gt "$e" ]; then piece err "$e" "$n" >&2; e=$((n)); fi; fi
}
report() { # the attempt has ended with $r
  emit; c=-; [ -e "$d/unchanged" ] && c=unchanged; [ -e "$d/changed" ] && c=changed
  f=-; [ "$r" != 0 ] && full && f=full
  if [ -e "$d/cancelled" ]; then say cancelled "$r" "$c" "$f"; fi
  say ended "$r" "$c" "$f"
}
ended_by_force() { if [ -e "$d/cancelled" ]; then r=137; report; fi; } # who cancels it has killed it, and is about to say so
follow() {
  while :; do
    [ -e "$d/fenced" ] && say never "$g"
    emit
    rc && report
    if ! alive; then
      rc && report # it ended just now
      ended_by_force
      if claim; then : >"$d/fenced"; say never "$g"; fi
      emit; say lost "${why:-killed}"
    fi
    sleep 0.2 </dev/null
  done
}
case $what in
start)
  [ -d "$base" ] || mkdir -p "$base" 2>/dev/null || cannot "make $base"
  if ! mkdir "$d" 2>/dev/null; then [ -d "$d" ] && follow; cannot "make a folder in $base"; fi
  { printf -- '------\n' >"$d/rc" && : >"$d/out" && : >"$d/err"; } 2>/dev/null || { rm -rf "$d"; cannot "write to $base"; }
  exec 3<&0
  setsid sh -c "$runner" orrery "$d" <&3 >"$d/out" 2>"$d/err" 3<&- &
  p=$!
  exec 3<&- </dev/null
  trap : ALRM
  (while sleep 0.3; do kill -ALRM $$ || exit; done) </dev/null >/dev/null 2>&1 &
  h=$!
  while :; do
    wait "$p"
    rc && break
    kill -0 "$p" 2>/dev/null || break # a shell that began nothing else since gives the same status of a dead child again and again
    emit
  done
  { kill -KILL "$h"; wait "$h"; } 2>/dev/null
  rc && report
  ended_by_force
  if claim; then : >"$d/fenced"; emit; say never "$g"; fi
  emit; say lost killed ;;
attach)
  current
  if [ ! -d "$d" ] && fence; then say never "$g"; fi
  follow ;;
cancel)
  current
  if [ ! -d "$d" ] && fence; then say gone; fi
  rc && say gone
  : >"$d/cancelled"
  if claim; then : >"$d/fenced"; say gone; fi
  alive || say gone
  kill -TERM "-$p" 2>/dev/null
  i=0 # time to clean up; less where only somebody's dead children are left
  while kill -0 "-$p" 2>/dev/null && [ "$i" -lt 50 ]; do i=$((i + 1)); rc && [ "$i" -gt 5 ] && break; sleep 0.1; done
  kill -KILL "-$p" 2>/dev/null
  i=0; while alive && [ "$i" -lt 20 ]; do i=$((i + 1)); sleep 0.1; done
  rc || printf '137 ok\n' 1<>"$d/rc"
  say gone ;;
clean)
  for d in "$base/$id" "$base/$id".[0-9]*; do
    if [ -e "$d/fenced" ]; then rm -f -- "$d/out" "$d/err" "$d/pid"; else rm -rf -- "$d"; fi
  done
  # A start that comes late must still find its fence. After a week none comes.
  find "$base" -mindepth 2 -maxdepth 2 -name fenced -mtime +7 2>/dev/null | while IFS= read -r l; do rm -rf -- "${l%/*}"; done
  say gone ;;
esac
)sh";

// What every runner begins with: $1 is the attempt's folder, or "" where nothing is to be kept. Its standard input is fields, each
// a line
// "=text", or "+N" followed by N bytes whose last is a dot. A stream that ends early ends the runner before it has done anything.
const char* const runner_prelude = R"sh(
umask 022
D=$1
trap : TERM
finish() { if [ -n "$D" ]; then printf '%-3s ok\n' "$1" 1<>"$D/rc"; exit 0; fi; exit "$1"; }
if [ -n "$D" ]; then
  read -r l <"/proc/$$/stat"; l=${l##*) }; set -- $l; b=${20}
  read -r k </proc/sys/kernel/random/boot_id
  printf '%s %s %s ok\n' "$$" "$b" "$k" >"$D/pid" || finish 255
fi
torn() { # of an attempt the result says it: it is begun anew, and what it says is the task's alone
  [ -n "$D" ] || echo 'the connection broke before all of the task had come: nothing was run' >&2
  finish T
}
get() {
  IFS= read -r V || torn
  case $V in
  =*) V=${V#=} ;;
  +*) V=$(head -c "${V#+}"); case $V in *.) V=${V%.} ;; *) torn ;; esac; IFS= read -r _ || torn ;;
  *) torn ;;
  esac
}
begin() { # all has come; from here on things happen
  get; [ "$V" = end ] || torn
  [ -z "$D" ] || (set -C; : >"$D/claim") 2>/dev/null || finish F
}
environment() { get; i=$V; while [ "$i" -gt 0 ]; do get; n=$V; get; export "$n=$V"; i=$((i - 1)); done; }
)sh";

// Who owns a file and who may read it.
const char* const attributes_program = R"sh(
attributes() { # path mode owner group: what differs, in words, in A
  A=
  [ -n "$2$3$4" ] || return 0
  m=$(stat -c '%a %U %u %G %g' -- "$1")
  w=$2 x=$3 y=$4
  set -- $m
  if [ -n "$w" ] && [ "$w" != "$1" ]; then A="$A, mode $1 -> $w"; fi
  if [ -n "$x" ] && [ "$x" != "$2" ] && [ "$x" != "$3" ]; then A="$A, owner $2 -> $x"; fi
  if [ -n "$y" ] && [ "$y" != "$4" ] && [ "$y" != "$5" ]; then A="$A, group $4 -> $y"; fi
  A=${A#, }
}
set_attributes() {
  if [ -n "$3" ]; then chown -- "$3" "$1" || return 1; fi
  if [ -n "$4" ]; then chgrp -- "$4" "$1" || return 1; fi
  if [ -n "$2" ]; then chmod -- "$2" "$1" || return 1; fi
}
)sh";

// A command, a script or a file. The job's words are in variables only: no argument of any process of ours shows them.
const char* const run_program = R"sh(
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
get; kind=$V
environment
if [ "$kind" = push ]; then
  get; path=$V; get; mode=$V; get; owner=$V; get; group=$V; get; size=$V; get; sum=$V
  get; [ "$V" = end ] || torn
  if [ -L "$path" ]; then path=$(readlink -f -- "$path"); fi
  if [ -d "$path" ]; then echo "$path is a folder" >&2; finish 255; fi
  if [ -f "$path" ]; then
    h=$(sha256sum <"$path"); attributes "$path" "$mode" "$owner" "$group"
    if [ "${h%% *}" = "$sum" ]; then
      (set -C; : >"$D/claim") 2>/dev/null || finish F
      if [ -z "$A" ]; then : >"$D/unchanged"; finish 0; fi
      set_attributes "$path" "$mode" "$owner" "$group" || finish 255
      : >"$D/changed"; echo "$A"; finish 0
    fi
    [ -n "$mode" ] || mode=$(stat -c %a -- "$path"); [ -n "$owner" ] || owner=$(stat -c %u -- "$path")
    [ -n "$group" ] || group=$(stat -c %g -- "$path")
  fi
  tmp=${path%/*}/.orrery-${D##*/}
  if ! (umask 077; head -c "$size" >"$tmp"); then rm -f -- "$tmp"; finish 255; fi
  if [ "$(wc -c <"$tmp")" -ne "$size" ]; then rm -f -- "$tmp"; torn; fi
  h=$(sha256sum <"$tmp")
  if [ "${h%% *}" != "$sum" ]; then rm -f -- "$tmp"; echo 'what arrived is not what was sent: the checksums differ' >&2; finish 255; fi
  if ! (set -C; : >"$D/claim") 2>/dev/null; then rm -f -- "$tmp"; finish F; fi
  if set_attributes "$tmp" "${mode:-644}" "$owner" "$group" && mv -f -- "$tmp" "$path"; then : >"$D/changed"; finish 0; fi
  rm -f -- "$tmp"; finish 255
fi
get; folder=$V
get; has_input=$V; input=
if [ "$has_input" = 1 ]; then get; input=$V; fi
body= shell=
if [ "$kind" = script ]; then get; body=$V; get; shell=$V; fi
get; argc=$V; set --
while [ "$argc" -gt 0 ]; do get; set -- "$@" "$V"; argc=$((argc - 1)); done
begin
exec </dev/null
if [ -n "$folder" ]; then cd -- "$folder" || finish 255; fi
[ -z "$D" ] || export ORRERY_FOLDER="$D/work"
doit() (
  if [ "$kind" = command ]; then exec "$@"; fi
  unset input V D l b k s i n kind folder has_input argc
  if [ -z "$shell" ]; then unset shell; eval "$body"; exit; fi
  exec 5<&0
  printf %s "$body" | { exec 3<&0 <&5 5<&-; unset body; exec "$shell" /dev/fd/3 "$@"; }
)
if [ "$has_input" = 1 ]; then printf %s "$input" | doit "$@"; r=$?; else doit "$@"; r=$?; fi
finish "$r"
)sh";

} // namespace orrery::drivers
