#include "drivers/ssh/programs.h"

namespace orrery::drivers {

// Blocks, one after the other, each made so. A line "= N RESULT LABEL: WORDS" says how block N went; what programs say is behind "|
// ", so that nothing else begins with "= ". In a dry run "< " and "> " lines say what is and what would be, "<64 " what a file
// holds now.
const char* const blocks_program = R"sh(
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
get; dry=$V
environment
get; count=$V
i=1
while [ "$i" -le "$count" ]; do
  get; kind=$V; get; fields=$V; j=1
  case $fields in '' | *[!0-9]*) torn ;; esac
  eval "K$i=\$kind N$i=\$fields"
  while [ "$j" -le "$fields" ]; do get; eval "F${i}_$j=\$V"; j=$((j + 1)); done
  i=$((i + 1))
done
begin
exec </dev/null
cd /
any=
newline='
'
words() { W=$*; case $W in *"$newline"*) W=$(printf %s "$W" | tr '\n\r' '  ' | head -c 500) ;; esac; } # one line, in W
same() { printf '= %s unchanged %s\n' "$i" "$label"; }
did() { words "$*"; any=1; [ -z "$D" ] || : >"$D/changed"; printf '= %s changed %s: %s\n' "$i" "$label" "$W"; }
fail() { words "$*"; printf '= %s failed %s: %s\n' "$i" "$label" "$W"; finish 1; }
note() { if [ -n "$dry" ]; then words "$1"; printf '< %s\n' "$W"; words "$2"; printf '> %s\n' "$W"; fi; }
try() { E=$("$@" 2>&1) || fail "$E"; }
has() { command -v "$1" >/dev/null 2>&1; }
loud() { # its output behind "| ", as it comes; returns what it returned. A file and no pipe: who stays in the background keeps nobody waiting
  "$@" >"$D/said" 2>&1 </dev/null & c=$!
  at=1 t=0
  while kill -0 "$c" 2>/dev/null; do
    t=$((t + 1)); case $t in [1-5]) sleep 0.02 ;; *) sleep 0.2; show ;; esac
  done
  wait "$c"; q=$?
  tail -n "+$at" "$D/said" | behind; rm -f "$D/said"
  return "$q"
}
show() { # whole lines that are new
  n=$(wc -l <"$D/said"); [ "$n" -ge "$at" ] || return 0
  tail -n "+$at" "$D/said" | head -n "$((n - at + 1))" | behind; at=$((n + 1))
}
behind() { awk '{ print "| " $0 }'; }
quietly() { # what it says matters only where it fails
  "$@" >"$D/said" 2>&1 </dev/null || { E=$(head -c 2000 "$D/said"); rm -f "$D/said"; fail "$E"; }
  rm -f "$D/said"
}
content() { if [ "$2" = b ]; then printf %s "$1" | base64 -d; else printf %s "$1"; fi; }
replace() { # path mode owner group: by what is in $tmp
  if [ -e "$1" ]; then
    set -- "$1" "${2:-$(stat -c %a -- "$1")}" "${3:-$(stat -c %u -- "$1")}" "${4:-$(stat -c %g -- "$1")}"
  fi
  E=$(set_attributes "$tmp" "${2:-644}" "$3" "$4" 2>&1 && mv -f -- "$tmp" "$1" 2>&1) || { rm -f -- "$tmp"; fail "$E"; }
}

block_file() { # path state has encoding content mode owner group
  path=$1
  case $2 in
  absent)
    if [ ! -e "$path" ] && [ ! -L "$path" ]; then same; return; fi
    note present absent
    if [ -z "$dry" ]; then
      if [ -d "$path" ] && [ ! -L "$path" ]; then try rmdir -- "$path"; else try rm -f -- "$path"; fi
    fi
    did removed; return ;;
  directory)
    if [ -d "$path" ]; then
      attributes "$path" "$6" "$7" "$8"
      if [ -z "$A" ]; then same; return; fi
      note '' "$A"
      [ -n "$dry" ] || try set_attributes "$path" "$6" "$7" "$8"
      did "$A"; return
    fi
    if [ -e "$path" ]; then fail 'it is there, and is no folder'; fi
    note absent folder
    if [ -z "$dry" ]; then try mkdir -p -- "$path"; try set_attributes "$path" "${6:-755}" "$7" "$8"; fi
    did created; return ;;
  esac
  if [ -L "$path" ]; then path=$(readlink -f -- "$path"); fi
  if [ -d "$path" ]; then fail 'it is a folder'; fi
  need= A=
  if [ ! -e "$path" ]; then need=created
  else
    if [ "$3" = 1 ] && ! content "$5" "$4" | cmp -s - "$path"; then need='new content'; fi
    attributes "$path" "$6" "$7" "$8"
  fi
  if [ -z "$need$A" ]; then same; return; fi
  if [ -n "$dry" ]; then
    if [ -n "$need" ] && [ -e "$path" ]; then printf '<64 '; head -c 65536 -- "$path" | base64 | tr -d '\n'; printf '\n'; fi
    if [ -n "$A" ]; then note '' "$A"; fi
  elif [ -n "$need" ]; then
    dir=${path%/*}; [ -d "${dir:-/}" ] || fail "there is no folder $dir; make it first, by a file block with state: directory"
    tmp=$dir/.orrery.$$
    E=$( (umask 077; content "$5" "$4" >"$tmp") 2>&1) || { rm -f -- "$tmp"; fail "cannot write: $E"; }
    replace "$path" "$6" "$7" "$8"
  else
    try set_attributes "$path" "$6" "$7" "$8"
  fi
  did "$need${need:+${A:+, }}$A"
}

block_line() { # path state line match create
  path=$1
  if [ -L "$path" ]; then path=$(readlink -f -- "$path"); fi
  source=$path
  if [ ! -e "$path" ]; then
    if [ "$2" = absent ]; then same; return; fi
    if [ "$5" != 1 ] && [ -z "$dry" ]; then fail 'there is no such file'; fi
    source=/dev/null
  fi
  edit() { # leaves 3 where nothing is to be done
    printf '%s\n' "$2" "$3" "$4" | awk '
      NR == 1 { S = $0; at = 0; exact = 0; gone = 0; next }
      NR == 2 { L = $0; next }
      NR == 3 { M = $0; next }
      { if (S == "absent") { if (M != "" ? $0 ~ M : $0 == L) { gone++; next } print; next }
        if ($0 == L) exact = NR
        if (M != "" && $0 ~ M) at = NR
        a[NR] = $0 }
      END { if (S == "absent") exit(gone ? 0 : 3)
        if (at ? a[at] == L : exact) exit 3
        for (i = 4; i <= NR; i++) print(i == at ? L : a[i])
        if (!at) print L }' - "$source"
  }
  edit "$@" >/dev/null; q=$?
  if [ "$q" = 3 ]; then same; return; fi
  [ "$q" = 0 ] || fail 'cannot be read'
  if [ "$2" = absent ]; then note present absent; else note '' "$3"; fi
  if [ -z "$dry" ]; then
    tmp=${path%/*}/.orrery.$$
    E=$( (umask 077; edit "$@" >"$tmp") 2>&1) || { rm -f -- "$tmp"; fail "cannot write: $E"; }
    replace "$path" '' '' ''
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
    loud apt-get install -y -q -o DPkg::Lock::Timeout=120 -- "$@" && return
    loud apt-get update -q -o DPkg::Lock::Timeout=120 && loud apt-get install -y -q -o DPkg::Lock::Timeout=120 -- "$@" ;;
  dnf | yum) loud "$manager" install -y -- "$@" ;;
  zypper) loud zypper --non-interactive install -- "$@" ;;
  apk) loud apk add -- "$@" ;;
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
    dnf | yum) install "$@" && loud "$manager" upgrade -y -- "$@" || fail "$manager did not manage it" ;;
    zypper) install "$@" && loud zypper --non-interactive update -- "$@" || fail 'zypper did not manage it' ;;
    apk) loud apk add -u -- "$@" || fail 'apk did not manage it' ;;
    *) install "$@" || fail 'apt-get did not manage it' ;;
    esac
    if [ "$before" = "$(versions "$@")" ]; then same; else did 'brought up to date'; fi
    return
  fi
  if [ -z "$need" ]; then same; return; fi
  if [ "$state" = absent ]; then note "present:$need" absent; else note "absent:$need" present; fi
  if [ -z "$dry" ]; then
    set --; for name in $need; do set -- "$@" "$name"; done
    if [ "$state" = present ]; then install "$@"
    else
      case $manager in
      apt) DEBIAN_FRONTEND=noninteractive; export DEBIAN_FRONTEND; loud apt-get remove -y -q -o DPkg::Lock::Timeout=120 -- "$@" ;;
      dnf | yum) loud "$manager" remove -y -- "$@" ;;
      zypper) loud zypper --non-interactive remove -- "$@" ;;
      apk) loud apk del -- "$@" ;;
      esac
    fi || fail "$manager did not manage it:$need"
  fi
  if [ "$state" = absent ]; then did "removed$need"; else did "installed$need"; fi
}

block_service() { # name state enabled
  done_=
  if [ -d /run/systemd/system ] && has systemctl; then
    is_running() { systemctl is-active --quiet -- "$1"; }; is_enabled() { systemctl is-enabled --quiet -- "$1" 2>/dev/null; }
    act() { systemctl "$1" -- "$2"; }; able() { systemctl "$1" -- "$2"; }
  elif has rc-service; then
    is_running() { rc-service "$1" status >/dev/null 2>&1; }; is_enabled() { rc-update show default 2>/dev/null | grep -qw -- "$1"; }
    act() { rc-service "$2" "$1"; }; able() { if [ "$1" = enable ]; then rc-update add "$2" default; else rc-update del "$2" default; fi; }
  elif has service; then
    is_running() { service "$1" status >/dev/null 2>&1; }
    is_enabled() { for l in /etc/rc[2345].d/S??"$1"; do [ -e "$l" ] && return; done; return 1; }
    act() { service "$2" "$1"; }
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
  set --; said=
  if [ -n "$uid" ] && [ "$uid" != "$is_uid" ]; then set -- "$@" -u "$uid"; said="$said, uid $is_uid -> $uid"; fi
  if [ -n "$shell" ] && [ "$shell" != "$is_shell" ]; then set -- "$@" -s "$shell"; said="$said, shell $is_shell -> $shell"; fi
  if [ -n "$home" ] && [ "$home" != "$is_home" ]; then set -- "$@" -d "$home"; said="$said, home $is_home -> $home"; fi
  if [ -n "$comment" ] && [ "$comment" != "$is_comment" ]; then set -- "$@" -c "$comment"; said="$said, comment"; fi
  if [ -n "$group" ]; then
    wanted=$(getent group "$group"); wanted=${wanted#*:*:}; wanted=${wanted%%:*}
    if [ "$wanted" != "$is_gid" ]; then set -- "$@" -g "$group"; said="$said, group $group"; fi
  fi
  if [ -n "$groups" ]; then
    in=" $(id -nG -- "$name") "; missing=; old=$IFS; IFS=,
    for m in $groups; do case $in in *" $m "*) ;; *) missing="$missing,$m" ;; esac; done
    IFS=$old
    if [ -n "$missing" ]; then set -- "$@" -a -G "${missing#,}"; said="$said, groups +${missing#,}"; fi
  fi
  if [ -z "$said" ]; then same; return; fi
  note '' "${said#, }"; [ -n "$dry" ] || try usermod "$@" -- "$name"; did "${said#, }"
}

block_command() { # creates folder unless-count unless... command...
  creates=$1 folder=$2 u=$3; shift 3
  if [ -n "$creates" ] && [ -e "$creates" ]; then same; return; fi
  if [ "$u" -gt 0 ]; then
    test_it() ( [ -z "$folder" ] || cd -- "$folder" || exit 1; k=$u; n=$#; r=1
      while [ "$r" -le "$n" ]; do x=$1; shift; [ "$r" -gt "$k" ] || set -- "$@" "$x"; r=$((r + 1)); done
      exec "$@" >/dev/null 2>&1 )
    if test_it "$@"; then same; return; fi
    shift "$u"
  fi
  note '' "would run $1"
  if [ -n "$dry" ]; then did 'would run'; return; fi
  run_it() ( [ -z "$folder" ] || cd -- "$folder" || exit 1; exec "$@" )
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
  i=$((i + 1))
done
[ -n "$any" ] || [ -z "$D" ] || : >"$D/unchanged"
finish 0
)sh";

} // namespace orrery::drivers
