# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Becomes one of the tests that t/prove has planned: prove calls it some hundred times, and Perl has begun
# and ended in less than half the time that Python takes. It says what the test said, and shows that if it
# failed.
use strict;
use warnings;
use Fcntl ':flock';
use POSIX ();

my ($name) = @ARGV;
my $plan = delete $ENV{GLAKE_PROVE};
my ($child, $scratch);
open my $file, '<', "$plan/" . $name =~ tr{/}{.}r or die "$plan: $name: $!\n";
my ($broken, $limit, $parallel, $folder, $keep, $variables, @command) =
	split /\0/, do { local $/; <$file> }, -1;
my %env = map { split /=/, $_, 2 } splice @command, 0, $variables;

if ($broken) {
	print "1..1\nnot ok 1 - what it runs does not compile\n";
	print STDERR "\n# $name: what it runs does not compile\n";
	exit 1;
}

# Processes that the test has left go with it, and its folder for temporary files.
END {
	local $?;
	kill 'KILL', -$child if $child;
	system 'sh', '-c', 'exec 2>/dev/null; chmod -R u+rwX "$1"; rm -rf "$1"', 'sh', $scratch
		if defined $scratch && !rmdir $scratch;
}
$SIG{$_} = sub { exit 1 } for 'INT', 'TERM', 'HUP';

sub locked {
	my ($path, $how) = @_;
	open my $lock, '>', $path or die "$path: $!\n";
	flock $lock, $how or die "$path: $!\n";
	return $lock;
}

# A time beside other tests, or alone. Who waits for it stands in the door: nobody passes.
my $door = locked("$plan/.door", LOCK_EX);
my $room = locked("$plan/.room", $parallel ? LOCK_SH : LOCK_EX);
close $door;

my $own = ($ENV{TMPDIR} || '/tmp') . "/glake-$$";
my $tries = 0;
while (!mkdir "$own-$tries") {
	-e "$own-$tries" or die "$own: $!\n";
	$tries++;
}
$scratch = "$own-$tries";
chmod 01777, $scratch; # some have processes of another user

# The test is the first of a group of processes that ends with it.
pipe my $from, my $to or die "pipe: $!\n";
$child = fork // die "fork: $!\n";
if (!$child) {
	POSIX::setsid();
	$SIG{$_} = 'DEFAULT' for 'INT', 'TERM', 'HUP';
	# nothing is written in the tree, and modules are compiled once all the same
	%ENV = (%ENV, %env, TMPDIR => $scratch, PYTHONPYCACHEPREFIX => "$plan/.python");
	delete $ENV{PYTHONDONTWRITEBYTECODE};
	open STDOUT, '>&', $to;
	# t/sched wants addresses that are the same in each run, and would begin once more for them
	my $personality = {x86_64 => 135, aarch64 => 92}->{(POSIX::uname)[4]};
	syscall $personality, 0x0040000 if $personality && $command[0] !~ m{/(?:python3|sh)$};
	chdir $folder and exec { $command[0] } @command;
	print STDERR "$command[0]: $!\n";
	POSIX::_exit(127);
}
close $to;
my ($said, $status) = ('');
eval {
	local $SIG{ALRM} = sub { die };
	alarm $limit;
	while (sysread $from, $said, 65536, length $said) { }
	waitpid $child, 0;
	$status = $?;
	alarm 0;
};
if (!defined $status) {
	$said .= "\n# took longer than $limit s\n";
	$status = 1;
} elsif ($status & 127) {
	$status &= 127;
	$said .= "\n# ended by signal $status\n";
} else {
	$status >>= 8;
}
# A test that bails out has failed a check: prove would call it ok, and run no more of the others.
while ($said =~ /^[^\S\n]*Bail out![^\S\n]*(.*)/m) {
	my ($at, $size, $why) = ($-[0], $+[0] - $-[0], $1);
	my $run = () = substr($said, 0, $at) =~ /^(?:not )?ok\b/mg;
	substr $said, $at, $size, "not ok @{[$run + 1]} - gave up: $why";
}
if (!$status && $said =~ /^not ok\b/m) {
	$said .= "\n# ended with 0 though a check has failed\n";
	$status = 1;
}
print $said;
if ($keep) {
	open my $kept, '>', $keep or die "$keep: $!\n";
	print $kept map { "$_\n" } grep { /^(?:(?:not )?ok\b|1\.\.)/ } split /\n/, $said;
}
print STDERR "\n# $name:\n", map { "$_\n" } grep { !/^ok / } split /\n/, $said if $status;
exit $status;
