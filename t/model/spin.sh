#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Checks a model exhaustively with spin: it holds, with each of the given parts added too, and
# with each of the given mistakes planted it does not. TAP.
#
#	spin.sh MODEL [+PART | MISTAKE]...
set -eu
model=$1
shift

echo "TAP version 13"
for program in spin cc; do
	if ! command -v "$program" >/dev/null; then
		echo "1..0 # SKIP $program is not installed"
		exit 0
	fi
done
echo "1..$(($# + 1))"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
failed=0
number=0

# check WANT WHAT [SPIN_OPTION]...
check() {
	want=$1 what=$2
	shift 2
	number=$((number + 1))
	# a mistake is found after few states, sooner than the compiler would be done; millions of
	# states are seen as fast as with -O2, which takes the compiler twice as long
	speed=-O0
	[ "$want" != 0 ] || speed=-O1
	# shellcheck disable=SC2015 # what failed is told below
	spin -a "$@" "$model" >said 2>&1 &&
		cc "$speed" -w -DSAFETY -o pan pan.c >>said 2>&1 &&
		./pan -m100000 >>said 2>&1 || true
	if grep -q "errors: $want\$" said && ! grep -q 'max search depth too small' said &&
		{ [ "$want" != 0 ] || ! grep -q 'Search not completed' said; }; then
		echo "ok $number - $what"
		sed -n 's/^ *\([0-9]*\) states, stored.*/# \1 states/p' said
	else
		echo "not ok $number - $what"
		sed 's/^/# /' said
		failed=1
	fi
}

check 0 "$(basename "$model") holds"
for name; do
	case $name in
	+*) check 0 "$(basename "$model") holds with ${name#+}" "-D${name#+}" ;;
	*) check 1 "found: $name" "-D$name" ;;
	esac
done
exit $failed
