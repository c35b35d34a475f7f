/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which files are read at all: as the one a program names, and as the installed one. */
#include "conf_found.h"

static struct glk_conf conf;

static int read_default(void)
{
	struct glake_options options = {.sz = sizeof(options)};

	found_none();
	return glk_conf_read(&options, on_finding, &found, &conf);
}

/* Named: `want` and an error. Installed: 0, a warning, and the defaults. */
static void refused(int want, const char *why)
{
	struct glake_error error = {.sz = sizeof(error)};

	is_int(read_named(NULL, &conf), want, why);
	is_int(found.count, 1, "one finding");
	is_found(0, want, 0, "", why);
	glake_last_error(&error);
	is_int(error.err, want, "and a record");
	is_int(error.error_class, want == -EACCES ? GLAKE_ERROR_PERM : GLAKE_ERROR_CONFIG,
		"of its class");
	has_str(error.text, found_path, "that names the file");

	conf.soft_gpus = 77;
	is_int(read_default(), 0, "the installed file is passed over");
	is_int(found.count, 1, "with one finding");
	is_found(0, 0, 0, "", why);
	has_str(found.at[0].text, "the file is not read", "which says so");
	is_int(conf.soft_gpus, 1, "the defaults hold");
}

static void missing(void)
{
	unlink(found_path);
	is_int(read_named(NULL, &conf), -ENOENT, "a named file that is missing");
	is_found(0, -ENOENT, 0, "", "there is no such file");
	is_int(read_default(), 0, "the installed one may be missing");
	is_int(found.count, 0, "without a word");
}

static void dotted(void)
{
	write_text(
		"soft.gpus = 9\n[pool]\nsoft.nodes = 3\nbudget = 1GiB\nsoft.gpsu = 4\n");
	is_int(read_named(NULL, &conf), 0, "keys with their sections before them");
	ok(conf.soft_gpus == 9 && conf.soft_nodes == 3 && conf.pool_budget == 1 << 30,
		"are read in any section");
	is_int(found.count, 1, "one is none");
	has_str(found.at[0].text, "did you mean soft.gpus?", "and has a suggestion");
}

static void modes(void)
{
	static const mode_t good[] = {0644, 0600, 0444, 0400, 0755};
	static const mode_t bad[] = {0666, 0664, 0646, 0622, 0777};

	for (int i = 0; i < 5; i++) {
		write_text("[soft]\ngpus = 9\n");
		chmod(found_path, good[i]);
		is_int(read_named(NULL, &conf), 0, "mode is fine");
		is_int(conf.soft_gpus, 9, "and the file is read");
	}
	for (int i = 0; i < 5; i++) {
		write_text("[soft]\ngpus = 9\n");
		chmod(found_path, bad[i]);
		refused(-EACCES, "writable by others than its owner");
	}
	if (geteuid()) {
		tap_skip("another owner", "needs root");
		write_text("[soft]\ngpus = 9\n");
		chmod(found_path, 0);
		refused(-EACCES, "this process may not read it");
		return;
	}
	tap_skip("a file that may not be read", "root may read all");
	write_text("[soft]\ngpus = 9\n");
	if (chown(found_path, 12345, 0))
		tap_bail("chown");
	refused(-EACCES, "owned neither by root nor by the user");
	if (chown(found_path, 0, 12345))
		tap_bail("chown");
	is_int(read_named(NULL, &conf), 0, "a group of others that may only read");
}

static void kinds(void)
{
	char target[128];

	unlink(found_path);
	if (mkfifo(found_path, 0600))
		tap_bail("mkfifo");
	refused(-EACCES, "not a regular file");
	unlink(found_path);
	if (mkdir(found_path, 0700))
		tap_bail("mkdir");
	refused(-EACCES, "not a regular file");
	rmdir(found_path);

	snprintf(target, sizeof(target), "%s/target", found_dir);
	write_text("[soft]\ngpus = 9\n");
	if (rename(found_path, target) || symlink(target, found_path))
		tap_bail("symlink");
	refused(-EACCES, "a symbolic link");
	unlink(target);
	refused(-EACCES, "a symbolic link");
}

static void sizes(void)
{
	static char text[(64 << 10) + 1];
	static const char *const nul[] = {"\0", "[soft]\ngpus = 3\n\0\n"};

	memset(text, '\n', sizeof(text));
	memcpy(text, "[soft]\ngpus = 9\n", 16);
	write_bytes(text, sizeof(text) - 1);
	is_int(read_named(NULL, &conf), 0, "64 KiB are read");
	is_int(conf.soft_gpus, 9, "with what they hold");
	errno = EINTR;
	is_int(read_named(NULL, &conf), 0,
		"the same where a call before has left its error");
	write_bytes(text, sizeof(text));
	refused(-EINVAL, "larger than 64 KiB");

	write_bytes(nul[0], 1);
	is_int(read_named(NULL, &conf), -EINVAL, "a zero byte");
	is_found(0, -EINVAL, 1, "", "not a text file");
	write_bytes(nul[1], 19);
	is_int(read_named(NULL, &conf), -EINVAL, "a zero byte further down");
	is_found(0, -EINVAL, 3, "", "not a text file");
	is_int(found.count, 1, "and nothing else is looked at");
	is_int(read_default(), -EINVAL,
		"content must be right in the installed file too");
}

static void content(void)
{
	write_text("[soft]\ngpus = 99\n");
	is_int(read_default(), -EINVAL, "a bad value in the installed file is an error");
	is_found(0, -EINVAL, 2, "soft.gpus", "right is 1 ... 64");
	write_text("[soft]\ngpsu = 9\n");
	is_int(read_default(), 0, "an unknown key is not");
	is_found(0, 0, 2, "soft.gpsu", "did you mean soft.gpus?");
}

int main(void)
{
	tap_plan_later();
	clear_environment();
	make_folder();
	glk_conf_path_set(found_path);
	missing();
	dotted();
	modes();
	kinds();
	sizes();
	content();
	glk_conf_path_set(NULL);
	has_str(glk_conf_path(), "/glake.conf", "the installed file is named again");
	return tap_done();
}
