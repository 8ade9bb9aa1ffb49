#include "drivers/ssh/programs.h"

namespace orrery::drivers {

// Starts, follows, kills or cleans up one attempt. Nothing in it comes from a job.
//
// Arguments: $1 operation (start, attach, cancel, clean); $2 the id of the attempt (for a start: the name of its folder); $3 a
// random token; $4 and $5 how many bytes of output and errors are stored already; $6 the program of the runner.
//
// Output: the new bytes of the attempt's output and errors. The last line of standard error is "TOKEN STATE ..." with the state of
// the attempt; `end_of` in remote.cpp parses it.
//
// clang-format off
//   ended CODE CHANGE DISK      the attempt has ended; CHANGE is changed, unchanged or -; DISK is full or -
//   cancelled CODE CHANGE DISK  the same, by a cancel
//   never NUMBER                it was not started and will not be; NUMBER is that of its last fenced folder
//   lost REASON                 it was started and left no exit code: rebooted or killed
//   gone                        cancel, clean: done
//   nospace FOLDER              nothing was started: the disk is full
//   cannot TEXT                 nothing was started
//
// Files in the folder of an attempt. Versions of this program meet on a host, so names and contents must not change:
//   claim     exists once: the runner creates it before it has any effect; an attach that finds nothing running creates it instead
//   fenced    nothing ran in this folder and nothing will, whatever start arrives late; the next start of the id uses ID.1, ID.2 ...
//   pid       "PID START-TIME BOOT-ID ok" of the runner; start time and boot id tell it from a later process of the same number
//   rc        "------" until the end, then "CODE ok"; written in place, so that a full disk cannot prevent the exit code
//   out, err  output and errors; their offsets are the offsets of the job's log
//   changed, unchanged, cancelled   marks
// clang-format on
const char* const attempt_program = R"sh(
umask 077
operation=$1 id=$2 token=$3 out_offset=$4 err_offset=$5 runner=$6
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
base=${HOME:-/root}/.orrery/attempts dir=$base/$id
generation=0

# The folder of the latest try: the first one that is not fenced.
find_current_dir() {
  generation=0 dir=$base/$id
  while [ -e "$dir/fenced" ]; do generation=$((generation + 1)); dir=$base/$id.$generation; done
}

# Creates the folder as a fence: the attempt was not started, and a start that arrives late must not start it.
# Fails where the folder exists, because the attempt was started in between.
create_fence() {
  mkdir -p "$base" 2>/dev/null
  if mkdir "$dir" 2>/dev/null; then { : >"$dir/claim" && : >"$dir/fenced"; } 2>/dev/null || cannot "write to $base"; return 0; fi
  [ -d "$dir" ] || cannot "make a folder in $base"
  return 1
}

# Writes the status line and ends the program.
answer() { printf '\n%s %s\n' "$token" "$*" >&2; exit 0; }
is_disk_full() { set -- $(df -Pk "$base" 2>/dev/null | tail -n 1); [ "${4:-1}" -lt 8 ]; }
cannot() { if is_disk_full; then answer nospace "$base"; else answer cannot "$1"; fi; }

# Whether the attempt has an exit code; sets `code`. "ok" shows that the line is complete.
has_exit_code() { code= mark=; read -r code mark 2>/dev/null <"$dir/rc" && [ "$mark" = ok ]; }

# Sets `born` to the start time of process $1 (field 22 of its stat; the name before it may contain spaces). Fails for a zombie.
read_start_time() {
  stat=; read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
  stat=${stat##*) }; set -- $stat
  [ "$1" != Z ] && born=${20}
}

# Whether the runner is alive: the same process, since the same boot. Sets `pid`, and `reason` where it is not.
is_alive() {
  pid= pid_born= pid_boot= mark=; read -r pid pid_born pid_boot mark 2>/dev/null <"$dir/pid"; [ "$mark" = ok ] || return 1
  read -r boot </proc/sys/kernel/random/boot_id; [ "$pid_boot" = "$boot" ] || { reason=rebooted; return 1; }
  born=; read_start_time "$pid" && [ "$born" = "$pid_born" ] || { reason=killed; return 1; }
}

# Takes the claim, which exists once (set -C: no overwriting). Succeeds for one caller only.
take_claim() { (set -C; : >"$dir/claim") 2>/dev/null; }

# Bytes $2 to $3 of file $1.
print_range() { tail -c "+$(($2 + 1))" "$dir/$1" 2>/dev/null | head -c "$(($3 - $2))"; }
# What the attempt has written since the last call.
print_new_output() {
  if [ -s "$dir/out" ]; then
    size=$(wc -c <"$dir/out")
    if [ "$size" -gt "$out_offset" ]; then print_range out "$out_offset" "$size"; out_offset=$((size)); fi
  fi
  if [ -s "$dir/err" ]; then
    size=$(wc -c <"$dir/err")
    if [ "$size" -gt "$err_offset" ]; then print_range err "$err_offset" "$size" >&2; err_offset=$((size)); fi
  fi
}

# The attempt has ended with `code`.
answer_end() {
  print_new_output
  change=-; [ -e "$dir/unchanged" ] && change=unchanged; [ -e "$dir/changed" ] && change=changed
  disk=-; [ "$code" != 0 ] && is_disk_full && disk=full
  if [ -e "$dir/cancelled" ]; then answer cancelled "$code" "$change" "$disk"; fi
  answer ended "$code" "$change" "$disk"
}
# A cancel has killed the runner and is about to write the exit code.
answer_if_cancelled() { if [ -e "$dir/cancelled" ]; then code=137; answer_end; fi; }

# Prints output until the attempt has ended.
follow() {
  while :; do
    [ -e "$dir/fenced" ] && answer never "$generation"
    print_new_output
    has_exit_code && answer_end
    if ! is_alive; then
      has_exit_code && answer_end # it ended just now
      answer_if_cancelled
      if take_claim; then : >"$dir/fenced"; answer never "$generation"; fi
      print_new_output; answer lost "${reason:-killed}"
    fi
    sleep 0.2 </dev/null
  done
}

case $operation in
start)
  [ -d "$base" ] || mkdir -p "$base" 2>/dev/null || cannot "make $base"
  # Both folders belong to this user and are closed to others: no other user can place a link or a prepared attempt there.
  for folder in "${base%/*}" "$base"; do
    if [ -L "$folder" ] || [ ! -O "$folder" ]; then cannot "use $folder: it is a link, or belongs to another user"; fi
  done
  # Creating the folder starts the attempt: a second start of the same folder follows the first one.
  if ! mkdir "$dir" 2>/dev/null; then [ -d "$dir" ] && follow; cannot "make a folder in $base"; fi
  { printf -- '------\n' >"$dir/rc" && : >"$dir/out" && : >"$dir/err"; } 2>/dev/null || { rm -rf "$dir"; cannot "write to $base"; }
  exec 3<&0 # the runner reads the task from our standard input
  setsid sh -c "$runner" orrery "$dir" <&3 >"$dir/out" 2>"$dir/err" 3<&- &
  pid=$!
  exec 3<&- </dev/null
  # `wait` returns at the end of the runner at once; a signal every 0.3 s interrupts it, to print output meanwhile.
  trap : ALRM
  (while sleep 0.3; do kill -ALRM $$ || exit; done) </dev/null >/dev/null 2>&1 &
  ticker=$!
  while :; do
    wait "$pid"
    has_exit_code && break
    kill -0 "$pid" 2>/dev/null || break # `wait` returns the status of a dead child again and again
    print_new_output
  done
  { kill -KILL "$ticker"; wait "$ticker"; } 2>/dev/null
  has_exit_code && answer_end
  answer_if_cancelled
  if take_claim; then : >"$dir/fenced"; print_new_output; answer never "$generation"; fi
  print_new_output; answer lost killed ;;
attach)
  find_current_dir
  if [ ! -d "$dir" ] && create_fence; then answer never "$generation"; fi
  follow ;;
cancel)
  find_current_dir
  if [ ! -d "$dir" ] && create_fence; then answer gone; fi
  has_exit_code && answer gone
  : >"$dir/cancelled"
  if take_claim; then : >"$dir/fenced"; answer gone; fi
  is_alive || answer gone
  kill -TERM "-$pid" 2>/dev/null # the process group of the runner
  # Five seconds to clean up; half a second where the runner has ended and only zombies are left.
  tenths=0
  while kill -0 "-$pid" 2>/dev/null && [ "$tenths" -lt 50 ]; do
    tenths=$((tenths + 1)); has_exit_code && [ "$tenths" -gt 5 ] && break; sleep 0.1
  done
  kill -KILL "-$pid" 2>/dev/null
  tenths=0; while is_alive && [ "$tenths" -lt 20 ]; do tenths=$((tenths + 1)); sleep 0.1; done
  has_exit_code || printf '137 ok\n' 1<>"$dir/rc"
  answer gone ;;
clean)
  for dir in "$base/$id" "$base/$id".[0-9]*; do
    if [ -e "$dir/fenced" ]; then rm -f -- "$dir/out" "$dir/err" "$dir/pid"; else rm -rf -- "$dir"; fi
  done
  # A start that arrives late must still find its fence. After a week none arrives.
  find "$base" -mindepth 2 -maxdepth 2 -name fenced -mtime +7 2>/dev/null | while IFS= read -r fence; do rm -rf -- "${fence%/*}"; done
  answer gone ;;
esac
)sh";

// The beginning of every runner. $1 is the attempt's folder, or "" for a dry run, which stores nothing. Standard input is a
// sequence of fields, each a line "=text", or "+N" followed by N bytes whose last one is a dot. Input that ends early ends the
// runner before it has any effect.
//
// Exit codes in `rc` that are no numbers: T the input was torn, F the attempt was fenced. In both cases nothing was run.
const char* const runner_prelude = R"sh(
umask 022
attempt_dir=$1
trap : TERM # a cancel sends TERM to the whole group: the runner survives it to write the exit code
finish() { if [ -n "$attempt_dir" ]; then printf '%-3s ok\n' "$1" 1<>"$attempt_dir/rc"; exit 0; fi; exit "$1"; }
if [ -n "$attempt_dir" ]; then
  read -r stat <"/proc/$$/stat"; stat=${stat##*) }; set -- $stat; born=${20}
  read -r boot </proc/sys/kernel/random/boot_id
  printf '%s %s %s ok\n' "$$" "$born" "$boot" >"$attempt_dir/pid" || finish 255
fi
input_is_torn() { # an attempt reports it by its exit code only: its output belongs to the task
  [ -n "$attempt_dir" ] || echo 'the connection broke before all of the task had arrived: nothing was run' >&2
  finish T
}
read_field() { # into `field`
  IFS= read -r field || input_is_torn
  case $field in
  =*) field=${field#=} ;;
  +*)
    field=$(head -c "${field#+}") # the dot at the end keeps $(...) from dropping newlines
    case $field in *.) field=${field%.} ;; *) input_is_torn ;; esac
    IFS= read -r _ || input_is_torn ;;
  *) input_is_torn ;;
  esac
}
take_claim() { (set -C; : >"$attempt_dir/claim") 2>/dev/null; }
begin() { # the whole input has arrived: from here on the runner has effects
  read_field; [ "$field" = end ] || input_is_torn
  [ -z "$attempt_dir" ] || take_claim || finish F
}
read_environment() { # stores the variables of the task: the runner itself never sees them, so they may have any name
  read_field; environment_size=$field; environment_at=0
  while [ "$environment_at" -lt "$environment_size" ]; do
    environment_at=$((environment_at + 1))
    read_field; eval "ORRERY_NAME_$environment_at=\$field"
    read_field; eval "ORRERY_TEXT_$environment_at=\$field"
  done
}
export_environment() { # called last in the subshell that becomes a program of the task: it may replace any variable of the runner
  orrery_at=0 orrery_size=$environment_size
  unset environment_size environment_at
  while [ "$orrery_at" -lt "$orrery_size" ]; do
    orrery_at=$((orrery_at + 1))
    eval "export \"\$ORRERY_NAME_$orrery_at=\$ORRERY_TEXT_$orrery_at\"; unset ORRERY_NAME_$orrery_at ORRERY_TEXT_$orrery_at"
  done
  unset orrery_at orrery_size
}
)sh";

// The runner of a command, a script or a file. The texts of the job are in shell variables only: they are in no argument of a
// process that orrery starts.
const char* const run_program = R"sh(
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
read_field; kind=$field
read_environment
if [ "$kind" = push ]; then
  read_field; path=$field; read_field; follow=$field; read_field; mode=$field; read_field; owner=$field; read_field; group=$field
  read_field; size=$field; read_field; sum=$field
  read_field; [ "$field" = end ] || input_is_torn
  refuse() { echo "$error" >&2; finish 255; }
  find_file "$path" "$follow" || refuse
  if [ -d "./$name" ]; then error="$path is a folder"; refuse; fi
  if [ -e "./$name" ]; then
    pin_file || refuse
    digest=$(sha256sum <"$file"); compare_attributes "$file" "$mode" "$owner" "$group"
    if [ "${digest%% *}" = "$sum" ]; then
      take_claim || finish F
      if [ -z "$differences" ]; then : >"$attempt_dir/unchanged"; finish 0; fi
      set_attributes "$file" "$mode" "$owner" "$group" || finish 255
      : >"$attempt_dir/changed"; echo "$differences"; finish 0
    fi
    keep_attributes "$mode" "$owner" "$group"
  fi
  # The content follows on standard input. It is written beside the file, verified, and then renamed over it.
  enter_staging || refuse
  if ! (umask 077; head -c "$size" >./new); then leave_staging; finish 255; fi
  if [ "$(wc -c <./new)" -ne "$size" ]; then leave_staging; input_is_torn; fi
  digest=$(sha256sum <./new)
  if [ "${digest%% *}" != "$sum" ]; then
    leave_staging; echo 'the content that arrived is not what was sent: the checksums differ' >&2; finish 255
  fi
  if ! take_claim; then leave_staging; finish F; fi
  if install_staged "${mode:-644}" "$owner" "$group"; then : >"$attempt_dir/changed"; finish 0; fi
  refuse
fi
read_field; folder=$field
read_field; has_input=$field; input=
if [ "$has_input" = 1 ]; then read_field; input=$field; fi
body= shell=
if [ "$kind" = script ]; then read_field; body=$field; read_field; shell=$field; fi
read_field; arguments_left=$field; set --
while [ "$arguments_left" -gt 0 ]; do read_field; set -- "$@" "$field"; arguments_left=$((arguments_left - 1)); done
begin
exec </dev/null
if [ -n "$folder" ]; then cd -- "$folder" || finish 255; fi
[ -z "$attempt_dir" ] || export ORRERY_FOLDER="$attempt_dir/work"
run_task() (
  orrery_kind=$kind orrery_shell=$shell orrery_body=$body
  unset input field attempt_dir stat born boot kind folder has_input arguments_left shell body
  export_environment
  if [ "$orrery_kind" = command ]; then exec "$@"; fi
  if [ -z "$orrery_shell" ]; then unset orrery_kind orrery_shell; eval "$orrery_body"; exit; fi
  # Another interpreter reads the script from a pipe, so that it is neither an argument nor a file; 5 is the task's standard input.
  exec 5<&0
  printf %s "$orrery_body" | { exec 3<&0 <&5 5<&-; unset orrery_body; exec "$orrery_shell" /dev/fd/3 "$@"; }
)
if [ "$has_input" = 1 ]; then printf %s "$input" | run_task "$@"; code=$?; else run_task "$@"; code=$?; fi
finish "$code"
)sh";

} // namespace orrery::drivers
