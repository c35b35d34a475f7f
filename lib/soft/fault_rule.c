/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads fault rules. The text is short and written by hand, so every mistake is named with
 * the word it stands in. Chance is a hash of seed and call number: the same rules fail the
 * same calls in every run.
 */
#include "soft/fault_rule.h"

#include "base/error.h"
#include "driver/ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const op_names[] = {
#define X(op, params, args, call) #op,
	GLK_DRV_OPS(X)
#undef X
};

static const struct {
	const char *name;
	int value;
} errnos[] = {
	{"ENOMEM", ENOMEM},
	{"EINVAL", EINVAL},
	{"EIO", EIO},
	{"ENODEV", ENODEV},
	{"EAGAIN", EAGAIN},
	{"EBUSY", EBUSY},
	{"EOPNOTSUPP", EOPNOTSUPP},
	{"EPERM", EPERM},
	{"EACCES", EACCES},
	{"EMFILE", EMFILE},
	{"ENFILE", ENFILE},
	{"ETIMEDOUT", ETIMEDOUT},
	{"ESTALE", ESTALE},
};

/* us */
#define DELAY_MOST 10000000

/* A piece of the text. */
struct word {
	const char *at;
	size_t length;
};

const char *glk_fault_op_name(int op)
{
	return op == GLK_FAULT_ANY ? "any" : op_names[op];
}

static bool word_is(struct word word, const char *text)
{
	return strlen(text) == word.length && !memcmp(word.at, text, word.length);
}

/* Cuts the next piece up to a character of `ends`; *text then stands behind it. */
static struct word word_cut(const char **text, const char *ends)
{
	struct word word = {*text, strcspn(*text, ends)};

	*text += word.length;
	return word;
}

static int bad(struct word word, const char *right)
{
	return glk_error(-EINVAL, GLAKE_ERROR_CONFIG, "fault rules: '%.*s' is not %s",
		(int)word.length, word.at, right);
}

static int op_read(struct word word, int *ret_op)
{
	if (word_is(word, "any")) {
		*ret_op = GLK_FAULT_ANY;
		return 0;
	}
	for (int i = 0; i < GLK_OP_COUNT; i++) {
		if (word_is(word, op_names[i])) {
			*ret_op = i;
			return 0;
		}
	}
	return bad(word, "an operation of the driver table, nor 'any'");
}

static int err_read(struct word word, int *ret_err)
{
	for (size_t i = 0; i < sizeof(errnos) / sizeof(*errnos); i++) {
		if (word_is(word, errnos[i].name)) {
			*ret_err = -errnos[i].value;
			return 0;
		}
	}
	return bad(word, "an errno value that a driver call answers, as ENOMEM");
}

static int number_read(struct word word, uint64_t *ret_number)
{
	uint64_t number = 0;

	for (size_t i = 0; i < word.length; i++) {
		if (word.at[i] < '0' || word.at[i] > '9' ||
			__builtin_mul_overflow(number, UINT64_C(10), &number) ||
			__builtin_add_overflow(
				number, (uint64_t)(word.at[i] - '0'), &number))
			return bad(word, "a number");
	}
	if (!word.length)
		return bad(word, "a number");
	*ret_number = number;
	return 0;
}

/* The numbers of one rule as written. */
struct numbers {
	uint64_t nth, from, len, every, p, seed, sticky, delay;
};

static int pair_read(struct word pair, struct numbers *numbers, int *ret_err)
{
	const struct {
		const char *key;
		uint64_t *value;
	} keys[] = {{"nth", &numbers->nth}, {"from", &numbers->from},
		{"len", &numbers->len}, {"every", &numbers->every}, {"p", &numbers->p},
		{"seed", &numbers->seed}, {"sticky", &numbers->sticky},
		{"delay", &numbers->delay}};
	const char *equals = memchr(pair.at, '=', pair.length);
	struct word key = pair, value = {"", 0};

	if (!equals)
		return bad(pair, "a pair as 'nth=3'");
	key.length = (size_t)(equals - pair.at);
	value = (struct word){equals + 1, pair.length - key.length - 1};
	if (word_is(key, "err"))
		return err_read(value, ret_err);
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		if (word_is(key, keys[i].key))
			return number_read(value, keys[i].value);
	return bad(key, "one of nth, from, len, every, p, seed, err, sticky, delay");
}

/* Makes the rule of its numbers, if they go together. */
static int rule_make(struct word whole, const struct numbers *n, int err,
	struct glk_fault_rule *ret_rule)
{
	struct glk_fault_rule *rule = ret_rule;
	int ways = !!n->nth + !!n->from + !!n->every + !!n->p;
	uint64_t first = n->nth ? n->nth : n->from;

	if (ways != 1)
		return bad(
			whole, "a rule with exactly one of nth, from, every, p, above 0");
	if (n->len && !first)
		return bad(whole, "a rule in which len goes with nth or from");
	if (n->p > 1000000)
		return bad(whole, "a rule whose p is calls of a million");
	if (n->delay > DELAY_MOST)
		return bad(whole, "a rule whose delay is 10 seconds at the most");
	if (n->delay && n->sticky)
		return bad(whole, "a rule in which a device is lost without a delay");
	/* one that says no error only holds up */
	rule->err = err || n->delay ? err : -EIO;
	rule->delay = n->delay;
	rule->first = first;
	rule->last = first + (n->len ? n->len - 1 : 0);
	if (n->from && !n->len)
		rule->last = UINT64_MAX;
	rule->every = n->every;
	rule->ppm = n->p;
	rule->seed = n->seed;
	rule->sticky = n->sticky;
	return 0;
}

static int rule_read(struct word whole, const char *text, struct glk_fault_rule *ret_rule)
{
	struct glk_fault_rule rule = {0};
	struct numbers numbers = {0};
	int error = 0, err;

	err = op_read(word_cut(&text, ":;"), &rule.op);
	while (!err && *text == ':') {
		text++;
		err = pair_read(word_cut(&text, ":;"), &numbers, &error);
	}
	if (!err)
		err = rule_make(whole, &numbers, error, &rule);
	if (!err)
		*ret_rule = rule;
	return err;
}

int glk_fault_parse(
	const char *text, struct glk_fault_rule rules[GLK_FAULT_RULES], size_t *ret_count)
{
	const char *at = text;
	size_t count = 0;
	int err;

	while (*at && strcmp(text, "off")) {
		const char *start = at;
		struct word whole = word_cut(&at, ";");

		if (count == GLK_FAULT_RULES)
			return bad(whole, "one of the first 16 rules, more are not kept");
		err = rule_read(whole, start, &rules[count]);
		if (err)
			return err;
		count++;
		if (*at)
			at++;
	}
	*ret_count = count;
	return 0;
}

/* The finaliser of splitmix64: every bit of the input moves every bit of the output. */
static uint64_t mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

bool glk_fault_strikes(struct glk_fault_rule *rule)
{
	uint64_t call = ++rule->calls;

	if (rule->first)
		return call >= rule->first && call <= rule->last;
	if (rule->every)
		return call % rule->every == 0;
	return mix(mix(rule->seed) + call) % 1000000 < rule->ppm;
}
