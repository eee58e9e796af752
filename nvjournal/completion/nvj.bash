# bash completion for nvj                                   -*- shell-script -*-
# SPDX-License-Identifier: Apache-2.0

_nvj() {
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
	local command=${COMP_WORDS[1]} options=
	COMPREPLY=()
	if [ "$COMP_CWORD" = 1 ]; then
		COMPREPLY=($(compgen -W 'format inspect check recover dump resize completion help --help --version' -- "$current"))
		return
	fi
	case $command in
	format) options='--size --partitions --placement --commits --offset --disk-uuid --force --allow-volatile --help' ;;
	inspect) options='--target --offset --json --help' ;;
	check) options='--offset --json --help' ;;
	recover) options='--target --disk-uuid --any-disk --allow-volatile --offset --json --help' ;;
	dump) options='--partition --transaction --offset --json --help' ;;
	resize) options='--size --json --help' ;;
	help)
		COMPREPLY=($(compgen -W 'format inspect check recover dump resize completion' -- "$current"))
		return
		;;
	completion)
		COMPREPLY=($(compgen -W 'bash' -- "$current"))
		return
		;;
	esac
	case $previous in
	--placement) COMPREPLY=($(compgen -W 'cpu block' -- "$current")); return ;;
	--size | --partitions | --commits | --offset | --disk-uuid | --partition | --transaction) return ;;
	esac
	case $current in
	-*) COMPREPLY=($(compgen -W "$options" -- "$current")) ;;
	*) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
	esac
}

complete -F _nvj nvj
