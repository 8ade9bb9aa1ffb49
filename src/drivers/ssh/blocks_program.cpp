#include "drivers/ssh/programs.h"

namespace orrery::drivers {

// Applies blocks in order. A line "= N RESULT LABEL: MESSAGE" reports block N; the output of programs is prefixed with "| ", so
// that nothing else begins with "= ". In a dry run, lines "< " and "> " have the current and the new state, and "<64 " the current
// content of a file in base64.
const char* const blocks_program = R"sh(
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
read_field; dry=$field
read_environment
read_field; count=$field
i=1
while [ "$i" -le "$count" ]; do
  read_field; kind=$field; read_field; fields=$field; j=1
  case $fields in '' | *[!0-9]*) input_is_torn ;; esac
  eval "K$i=\$kind N$i=\$fields"
  while [ "$j" -le "$fields" ]; do read_field; eval "F${i}_$j=\$field"; j=$((j + 1)); done
  i=$((i + 1))
done
begin
exec </dev/null
cd /
any=
newline='
'
one_line() { line=$*; case $line in *"$newline"*) line=$(printf %s "$line" | tr '\n\r' '  ' | head -c 500) ;; esac; } # sets `line`
same() { printf '= %s unchanged %s\n' "$i" "$label"; }
did() { one_line "$*"; any=1; [ -z "$attempt_dir" ] || : >"$attempt_dir/changed"; printf '= %s changed %s: %s\n' "$i" "$label" "$line"; }
fail() { one_line "$*"; printf '= %s failed %s: %s\n' "$i" "$label" "$line"; finish 1; }
note() { if [ -n "$dry" ]; then one_line "$1"; printf '< %s\n' "$line"; one_line "$2"; printf '> %s\n' "$line"; fi; }
try() { error=$("$@" 2>&1) || fail "$error"; }
has() { command -v "$1" >/dev/null 2>&1; }
tool() ( export_environment; exec "$@" ) # a program with the variables of the task
loud() { # runs a command with its output prefixed, as it comes; returns its status. A file and not a pipe: a process that stays in the background must not block
  "$@" >"$attempt_dir/printed" 2>&1 </dev/null & c=$!
  at=1 t=0
  while kill -0 "$c" 2>/dev/null; do
    t=$((t + 1)); case $t in [1-5]) sleep 0.02 ;; *) sleep 0.2; show ;; esac
  done
  wait "$c"; q=$?
  tail -n "+$at" "$attempt_dir/printed" | behind; rm -f "$attempt_dir/printed"
  return "$q"
}
show() { # prints complete new lines
  n=$(wc -l <"$attempt_dir/printed"); [ "$n" -ge "$at" ] || return 0
  tail -n "+$at" "$attempt_dir/printed" | head -n "$((n - at + 1))" | behind; at=$((n + 1))
}
behind() { awk '{ print "| " $0 }'; }
quietly() { # runs a command whose output matters only where it fails
  "$@" >"$attempt_dir/printed" 2>&1 </dev/null || { error=$(head -c 2000 "$attempt_dir/printed"); rm -f "$attempt_dir/printed"; fail "$error"; }
  rm -f "$attempt_dir/printed"
}
content() { if [ "$2" = b ]; then printf %s "$1" | base64 -d; else printf %s "$1"; fi; }
stage() { # runs a command whose output is the new content of the file $name, which keeps its attributes
  enter_staging || fail "$error"
  error=$( (umask 077; "$@" >./new) 2>&1) || { leave_staging; fail "cannot write: $error"; }
}

block_file() { # path state has encoding content mode owner group follow
  path=$1 mode=$6 owner=$7 group=$8
  cd /
  case $2 in
  absent) remove_file "$9"; return ;;
  directory) make_folder "$9"; return ;;
  esac
  find_file "$path" "$9"; q=$?
  # In a dry run an earlier block may be what makes the folder.
  if [ "$q" = 1 ] || { [ "$q" = 2 ] && [ -z "$dry" ]; }; then fail "$error"; fi
  need= differences= file=
  if [ "$q" = 2 ] || [ ! -e "./$name" ]; then need=created
  else
    if [ -d "./$name" ]; then fail 'it is a folder'; fi
    pin_file || fail "$error"
    if [ "$3" = 1 ] && ! content "$5" "$4" | cmp -s - "$file"; then need='new content'; fi
    compare_attributes "$file" "$mode" "$owner" "$group"
  fi
  if [ -z "$need$differences" ]; then same; return; fi
  if [ -n "$dry" ]; then
    if [ -n "$need" ] && [ -n "$file" ]; then printf '<64 '; head -c 65536 "$file" | base64 | tr -d '\n'; printf '\n'; fi
    if [ -n "$differences" ]; then note '' "$differences"; fi
  elif [ -n "$need" ]; then
    [ -z "$file" ] || keep_attributes "$mode" "$owner" "$group"
    stage content "$5" "$4"
    install_staged "${mode:-644}" "$owner" "$group" || fail "$error"
  else
    try set_attributes "$file" "$mode" "$owner" "$group"
  fi
  did "$need${need:+${differences:+, }}$differences"
}
remove_file() { # 1: links on the way are followed
  enter "${path%/*}/" "$1"; q=$? name=${path##*/}
  case $q in 0) ;; 2) same; return ;; *) fail "$error" ;; esac
  if [ ! -e "./$name" ] && [ ! -L "./$name" ]; then same; return; fi
  note present absent
  if [ -z "$dry" ]; then
    if [ -d "./$name" ] && [ ! -L "./$name" ]; then try rmdir "./$name"; else try rm -f "./$name"; fi
  fi
  did removed
}
make_folder() { # 1: links on the way are followed
  enter "$path/" "$1"; q=$?
  if [ "$q" = 0 ]; then
    compare_attributes . "$mode" "$owner" "$group"
    if [ -z "$differences" ]; then same; return; fi
    note '' "$differences"
    [ -n "$dry" ] || try set_attributes . "$mode" "$owner" "$group"
    did "$differences"; return
  fi
  [ "$q" = 2 ] || fail "$error"
  note absent folder
  if [ -z "$dry" ]; then
    cd /; enter "$path/" "$1" 1 || fail "$error"
    try set_attributes . "${mode:-755}" "$owner" "$group"
  fi
  did created
}

block_line() { # path state line match create follow
  cd /
  find_file "$1" "$6"; q=$?
  if [ "$q" = 1 ] || { [ "$q" = 2 ] && [ "$2" != absent ] && [ -z "$dry" ]; }; then fail "$error"; fi
  file= source=/dev/null
  if [ "$q" = 0 ] && [ -e "./$name" ]; then
    pin_file || fail "$error"
    source=$file
    # While staging, the working folder is one level below.
    case $file in ./*) staged_source=../$name ;; *) staged_source=$file ;; esac
  else
    if [ "$2" = absent ]; then same; return; fi
    if [ "$5" != 1 ] && [ -z "$dry" ]; then fail 'there is no such file'; fi
    staged_source=/dev/null
  fi
  edit() { # exits with 3 where there is nothing to do
    printf '%s\n' "$2" "$3" "$4" | awk '
      NR == 1 { S = $0; at = 0; exact = 0; gone = 0; next }
      NR == 2 { L = $0; next }
      NR == 3 { M = $0; next }
      # "" makes them texts: as numbers, 1 and 1.0 would be the same line
      { if (S == "absent") { if (M != "" ? $0 ~ M : $0 "" == L "") { gone++; next } print; next }
        if ($0 "" == L "") exact = NR
        if (M != "" && $0 ~ M) at = NR
        a[NR] = $0 }
      END { if (S == "absent") exit(gone ? 0 : 3)
        if (at ? a[at] "" == L "" : exact) exit 3
        for (i = 4; i <= NR; i++) print(i == at ? L : a[i])
        if (!at) print L }' - "$source"
  }
  edit "$@" >/dev/null; q=$?
  if [ "$q" = 3 ]; then same; return; fi
  [ "$q" = 0 ] || fail 'cannot be read'
  if [ "$2" = absent ]; then note present absent; else note '' "$3"; fi
  if [ -z "$dry" ]; then
    mode=644 owner= group=; [ -z "$file" ] || keep_attributes '' '' ''
    source=$staged_source
    stage edit "$@"
    install_staged "$mode" "$owner" "$group" || fail "$error"
  fi
  if [ "$2" = absent ]; then did 'line removed'; else did 'line set'; fi
}

have_package() {
  case $manager in
  apt) [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ] ;;
  apk) apk info -e "$1" >/dev/null 2>&1 ;;
  *) rpm -q "$1" >/dev/null 2>&1 ;;
  esac
}
versions() {
  case $manager in
  apt) dpkg-query -W -f='${Package} ${Version}\n' "$@" 2>/dev/null ;;
  apk) apk info -v 2>/dev/null ;;
  *) rpm -q "$@" 2>/dev/null ;;
  esac
}
install() {
  case $manager in
  apt)
    export DEBIAN_FRONTEND=noninteractive
    loud tool apt-get install -y -q -o DPkg::Lock::Timeout=120 -- "$@" && return
    loud tool apt-get update -q -o DPkg::Lock::Timeout=120 && loud tool apt-get install -y -q -o DPkg::Lock::Timeout=120 -- "$@" ;;
  dnf | yum) loud tool "$manager" install -y -- "$@" ;;
  zypper) loud tool zypper --non-interactive install -- "$@" ;;
  apk) loud tool apk add -- "$@" ;;
  esac
}
block_package() { # state name...
  state=$1; shift; manager=
  for m in apt:apt-get dnf:dnf yum:yum zypper:zypper apk:apk; do if has "${m#*:}"; then manager=${m%%:*}; break; fi; done
  [ -n "$manager" ] || fail 'no package manager was found (apt-get, dnf, yum, zypper, apk)'
  need=
  for name in "$@"; do
    if have_package "$name"; then [ "$state" = absent ] && need="$need $name"; else [ "$state" = absent ] || need="$need $name"; fi
  done
  if [ "$state" = latest ]; then
    if [ -n "$dry" ]; then note "$(versions "$@")" latest; did 'would be brought up to date'; return; fi
    before=$(versions "$@")
    case $manager in
    dnf | yum) install "$@" && loud tool "$manager" upgrade -y -- "$@" || fail "$manager failed" ;;
    zypper) install "$@" && loud tool zypper --non-interactive update -- "$@" || fail 'zypper failed' ;;
    apk) loud tool apk add -u -- "$@" || fail 'apk failed' ;;
    *) install "$@" || fail 'apt-get failed' ;;
    esac
    if [ "$before" = "$(versions "$@")" ]; then same; else did 'brought up to date'; fi
    return
  fi
  if [ -z "$need" ]; then same; return; fi
  if [ "$state" = absent ]; then note "present:$need" absent; else note "absent:$need" present; fi
  if [ -z "$dry" ]; then
    set -f; set -- $need; set +f
    if [ "$state" = present ]; then install "$@"
    else
      case $manager in
      apt) DEBIAN_FRONTEND=noninteractive; export DEBIAN_FRONTEND; loud tool apt-get remove -y -q -o DPkg::Lock::Timeout=120 -- "$@" ;;
      dnf | yum) loud tool "$manager" remove -y -- "$@" ;;
      zypper) loud tool zypper --non-interactive remove -- "$@" ;;
      apk) loud tool apk del -- "$@" ;;
      esac
    fi || fail "$manager failed:$need"
  fi
  if [ "$state" = absent ]; then did "removed$need"; else did "installed$need"; fi
}

block_service() { # name state enabled
  done_=
  if [ -d /run/systemd/system ] && has systemctl; then
    is_running() { systemctl is-active --quiet -- "$1"; }; is_enabled() { systemctl is-enabled --quiet -- "$1" 2>/dev/null; }
    act() { tool systemctl "$1" -- "$2"; }; able() { tool systemctl "$1" -- "$2"; }
  elif has rc-service; then
    is_running() { rc-service "$1" status >/dev/null 2>&1; }; is_enabled() { rc-update show default 2>/dev/null | grep -qw -- "$1"; }
    act() { tool rc-service "$2" "$1"; }; able() { if [ "$1" = enable ]; then rc-update add "$2" default; else rc-update del "$2" default; fi; }
  elif has service; then
    is_running() { service "$1" status >/dev/null 2>&1; }
    is_enabled() { for l in /etc/rc[2345].d/S??"$1"; do [ -e "$l" ] && return; done; return 1; }
    act() { tool service "$2" "$1"; }
    able() { if [ "$1" = enable ]; then update-rc.d "$2" defaults || return 1; fi; update-rc.d "$2" "$1"; } # "enable" alone wants links that are there
  else
    fail 'no service manager was found (systemctl, rc-service, service)'
  fi
  case $3 in
  yes) if ! is_enabled "$1"; then note disabled enabled; [ -n "$dry" ] || try able enable "$1"; done_=', enabled'; fi ;;
  no) if is_enabled "$1"; then note enabled disabled; [ -n "$dry" ] || try able disable "$1"; done_=', disabled'; fi ;;
  esac
  case $2 in
  running) if ! is_running "$1"; then note stopped running; [ -n "$dry" ] || quietly act start "$1"; done_="$done_, started"; fi ;;
  stopped) if is_running "$1"; then note running stopped; [ -n "$dry" ] || quietly act stop "$1"; done_="$done_, stopped"; fi ;;
  restarted) note running restarted; [ -n "$dry" ] || quietly act restart "$1"; done_="$done_, restarted" ;;
  reloaded) note running reloaded; [ -n "$dry" ] || quietly act reload "$1"; done_="$done_, reloaded" ;;
  esac
  if [ -z "$done_" ]; then same; else did "${done_#, }"; fi
}

block_user() { # name state uid group groups shell home system comment
  name=$1
  entry=$(getent passwd "$name")
  if [ "$2" = absent ]; then
    if [ -z "$entry" ]; then same; return; fi
    note present absent; [ -n "$dry" ] || try userdel -- "$name"; did removed; return
  fi
  has useradd || fail 'useradd is missing: users are made with the shadow tools'
  uid=$3 group=$4 groups=$5 shell=$6 home=$7 system=$8 comment=$9
  set --
  if [ -z "$entry" ]; then
    [ -z "$uid" ] || set -- "$@" -u "$uid"; [ -z "$group" ] || set -- "$@" -g "$group"; [ -z "$groups" ] || set -- "$@" -G "$groups"
    [ -z "$shell" ] || set -- "$@" -s "$shell"; [ -z "$home" ] || set -- "$@" -d "$home"; [ -z "$comment" ] || set -- "$@" -c "$comment"
    if [ "$system" = 1 ]; then set -- "$@" -r; else set -- "$@" -m; fi
    note absent present; [ -n "$dry" ] || try useradd "$@" -- "$name"; did created; return
  fi
  old=$IFS; IFS=:; set -f; set -- $entry; set +f; IFS=$old
  is_uid=$3 is_gid=$4 is_comment=$5 is_home=$6 is_shell=${7-}
  set --; changes=
  if [ -n "$uid" ] && [ "$uid" != "$is_uid" ]; then set -- "$@" -u "$uid"; changes="$changes, uid $is_uid -> $uid"; fi
  if [ -n "$shell" ] && [ "$shell" != "$is_shell" ]; then set -- "$@" -s "$shell"; changes="$changes, shell $is_shell -> $shell"; fi
  if [ -n "$home" ] && [ "$home" != "$is_home" ]; then set -- "$@" -d "$home"; changes="$changes, home $is_home -> $home"; fi
  if [ -n "$comment" ] && [ "$comment" != "$is_comment" ]; then set -- "$@" -c "$comment"; changes="$changes, comment"; fi
  if [ -n "$group" ]; then
    wanted=$(getent group "$group"); wanted=${wanted#*:*:}; wanted=${wanted%%:*}
    if [ "$wanted" != "$is_gid" ]; then set -- "$@" -g "$group"; changes="$changes, group $group"; fi
  fi
  if [ -n "$groups" ]; then
    in=" $(id -nG -- "$name") "; missing=; old=$IFS; IFS=,
    for m in $groups; do case $in in *" $m "*) ;; *) missing="$missing,$m" ;; esac; done
    IFS=$old
    if [ -n "$missing" ]; then set -- "$@" -a -G "${missing#,}"; changes="$changes, groups +${missing#,}"; fi
  fi
  if [ -z "$changes" ]; then same; return; fi
  note '' "${changes#, }"; [ -n "$dry" ] || try usermod "$@" -- "$name"; did "${changes#, }"
}

block_command() { # creates folder unless-count unless... command...
  creates=$1 folder=$2 u=$3; shift 3
  if [ -n "$creates" ] && [ -e "$creates" ]; then same; return; fi
  if [ "$u" -gt 0 ]; then
    test_it() ( [ -z "$folder" ] || cd -- "$folder" || exit 1; k=$u; n=$#; r=1
      while [ "$r" -le "$n" ]; do x=$1; shift; [ "$r" -gt "$k" ] || set -- "$@" "$x"; r=$((r + 1)); done
      export_environment; exec "$@" >/dev/null 2>&1 )
    if test_it "$@"; then same; return; fi
    shift "$u"
  fi
  note '' "would run $1"
  if [ -n "$dry" ]; then did 'would run'; return; fi
  run_it() ( [ -z "$folder" ] || cd -- "$folder" || exit 1; export_environment; exec "$@" )
  loud run_it "$@" || fail "exit code $q"
  did 'ran'
}

i=1
while [ "$i" -le "$count" ]; do
  eval "kind=\$K$i fields=\$N$i label=\$F${i}_1"
  set --; j=2
  while [ "$j" -le "$fields" ]; do eval "set -- \"\$@\" \"\$F${i}_$j\""; j=$((j + 1)); done
  case $kind in
  file) block_file "$@" ;;
  line) block_line "$@" ;;
  package) block_package "$@" ;;
  service) block_service "$@" ;;
  user) block_user "$@" ;;
  command) block_command "$@" ;;
  *) fail 'an unknown block' ;;
  esac
  exec 4<&- # a file that pin_file opened is not for the programs of later blocks
  i=$((i + 1))
done
[ -n "$any" ] || [ -z "$attempt_dir" ] || : >"$attempt_dir/unchanged"
finish 0
)sh";

} // namespace orrery::drivers
