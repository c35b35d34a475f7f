# SPDX-License-Identifier: LGPL-2.1-or-later
# Completion of glakectl for bash. It offers what the tool's own help and list of keys say, so that
# it cannot fall behind them; it needs bash alone.

# Words of the help: the options of this command and subcommand, with what they take.
_glakectl_options()
{
	local line name
	while IFS= read -r line; do
		[[ $line =~ ^\ \ -(.),\ --([a-z-]+)(\ ([^ ]+))?\ \ +(.*)$ ]] || continue
		name=${BASH_REMATCH[5]%%:*}
		# "show: ..." and "show, check: ..." are of other subcommands than this one
		[[ " $subs " == *" ${name%%,*} "* && ", $name," != *", $sub,"* ]] && continue
		printf '%s %s %s\n' "-${BASH_REMATCH[1]}" "--${BASH_REMATCH[2]}" "${BASH_REMATCH[4]}"
	done <<<"$help"
}

# Keys with a '=' behind, or behind one the values that it may have.
_glakectl_keys()
{
	local line key=
	while IFS= read -r line; do
		if [[ $line =~ ^([a-z]+\.[a-z_]+)\  ]]; then
			key=${BASH_REMATCH[1]}
			[[ $1 == *=* ]] || printf '%s\n' "$key="
		elif [[ $1 == "$key="* && $line =~ ^\ +(choice|bool):\ (.*)$ ]]; then
			printf '%s\n' "${BASH_REMATCH[2]//, /$'\n'}"
		fi
	done < <("$tool" conf show --default --help-keys 2>/dev/null)
}

# Processes that answer, by number.
_glakectl_processes()
{
	local pid
	while read -r pid _; do
		[[ $pid =~ ^[0-9]+$ ]] && printf '%s\n' "$pid"
	done < <("$tool" ps 2>/dev/null)
}

_glakectl_offer()
{
	mapfile -t COMPREPLY < <(compgen "$@")
}

# What an option takes, or a command, by the word that the help has for it.
_glakectl_argument()
{
	local kind=$1 text=$2
	case $kind in
	KEY=VALUE*)
		_glakectl_offer -W "$(_glakectl_keys "$text")" -- "${text#*=}"
		[[ $text == *=* ]] || compopt -o nospace
		;;
	KEY)
		_glakectl_offer -W "$(_glakectl_keys "$text" | tr -d =)" -- "$text"
		;;
	FILE* | OUT | TRACE)
		_glakectl_offer -f -- "$text"
		compopt -o filenames
		;;
	PID) _glakectl_offer -W "$(_glakectl_processes)" -- "$text" ;;
	*[A-Z]*) ;; # a number or the like
	*)
		_glakectl_offer -W "${kind//|/ }" -- "$text"
		;;
	esac
}

_glakectl()
{
	local tool=${COMP_WORDS[0]} words command sub='' subs='' help short long kind text prev
	local -a more=()

	# words as they were typed, for readline has taken them apart at '='
	read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
	[[ ${COMP_LINE:0:COMP_POINT} == *[[:space:]] ]] && words+=("")
	text=${words[-1]} prev=${words[-2]}
	COMPREPLY=()
	if ((${#words[@]} == 2)); then
		help=$("$tool" --help 2>/dev/null)
		_glakectl_offer -W "--help --version $(sed -n 's/^  \([a-z]*\)  .*/\1/p' <<<"$help")" -- "$text"
		return
	fi
	command=${words[1]}
	help=$("$tool" "$command" --help 2>/dev/null)
	subs=$(sed -n "s/^.*glakectl $command \([a-z]*\) .*/\1/p" <<<"$help" | tr '\n' ' ')
	[[ -n $subs && ${#words[@]} -gt 3 ]] && sub=${words[2]}

	while read -r short long kind; do
		if [[ -n $kind && ($prev == "$short" || $prev == "$long") ]]; then
			_glakectl_argument "$kind" "$text"
			return
		elif [[ -n $kind && $text == "$long="* ]]; then
			_glakectl_argument "$kind" "${text#*=}"
			return
		fi
		more+=("$long")
	done < <(_glakectl_options)

	if [[ $text == -* ]]; then
		_glakectl_offer -W "${more[*]}" -- "$text"
	elif [[ -n $subs && -z $sub ]]; then
		_glakectl_offer -W "$subs" -- "$text"
	else
		kind=$(sed -n "/^\(usage\|  *glakectl\|  *\[\)/p" <<<"$help" |
			if [[ -n $sub ]]; then grep " $sub "; else cat; fi)
		_glakectl_offer -W "$(grep -o '\[[a-z]*[] ]' <<<"$kind" | tr -d '[] ')" -- "$text"
		more=("${COMPREPLY[@]}") COMPREPLY=()
		case $kind in
		*PID*) _glakectl_argument PID "$text" ;; # or the name of a program that runs
		*FILE* | *TRACE* | *PROGRAM*) _glakectl_argument FILE "$text" ;;
		*KEY*) _glakectl_argument KEY "$text" ;;
		esac
		COMPREPLY=("${more[@]}" "${COMPREPLY[@]}")
	fi
}

complete -F _glakectl glakectl
