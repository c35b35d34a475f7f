/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the opcodes of pickles do with values that are there: they put them into lists and dicts. Of
 * the name of a function nothing is looked for, so nothing can be called.
 */
#include "tool/unpickle_machine.h"

#include <errno.h>

/* What names a function of PyTorch's, in `number` of a value of no kind. */
#define TORCH_MARK 1

/* The values from one on go into a list. */
static int append(struct machine *m, struct unpickle_value list, size_t from)
{
	int err = 0;

	for (size_t i = from; i <= m->stack.count && !err; i++)
		err = unpickle_append(m->u, list, *machine_value(m, i));
	m->stack.count = from - 1;
	return machine_check(m, err);
}

/* Keys and values by turns, from one on, go into a dict. */
static int set_items(struct machine *m, struct unpickle_value dict, size_t from)
{
	int err = 0;

	if ((m->stack.count + 1 - from) % 2)
		return machine_fail(m, -EINVAL, "a key without a value");
	for (size_t i = from; i < m->stack.count && !err; i += 2)
		err = unpickle_set(
			m->u, dict, *machine_value(m, i), *machine_value(m, i + 1));
	m->stack.count = from - 1;
	return machine_check(m, err);
}

/* Takes the last mark away; the first value above it. */
static int unmark(struct machine *m, size_t *ret_from)
{
	if (!m->marks)
		return machine_fail(m, -EINVAL, "the end of a list that has not begun");
	*ret_from = m->mark[--m->marks] + 1;
	return 0;
}

static int close_tuple(struct machine *m, size_t from)
{
	struct unpickle_value tuple;
	int err = machine_check(m, unpickle_new_list(m->u, &tuple));

	if (!err)
		err = append(m, tuple, from);
	return err ? err : machine_push(m, tuple);
}

/* The stack has what is to be filled below a mark, and what it is filled with above. */
static int fill(struct machine *m, bool marked,
	int (*fn)(struct machine *m, struct unpickle_value to, size_t from), size_t count)
{
	size_t from = 0;
	int err = marked ? unmark(m, &from) : 0;

	if (err)
		return err;
	if (!marked && !machine_has(m, count + 1))
		return machine_fail(m, -EINVAL, "too few values");
	if (!marked)
		from = m->stack.count + 1 - count;
	if (from <= machine_base(m) + 1)
		return machine_fail(m, -EINVAL, "nothing to put them into");
	return fn(m, *machine_value(m, from - 1), from);
}

/* All values above a mark become one. */
static int gather(struct machine *m, bool dict)
{
	struct unpickle_value value;
	size_t from = 0;
	int err = unmark(m, &from);

	if (err || !dict)
		return err ? err : close_tuple(m, from);
	err = machine_check(m, unpickle_new_dict(m->u, &value));
	if (!err)
		err = set_items(m, value, from);
	return err ? err : machine_push(m, value);
}

/* The names of something to call, two lines. */
static int take_global(struct machine *m)
{
	static const char torch[] = "torch.jit._pickle\n";
	struct unpickle_value value = {0};
	bool is_torch = true;
	size_t length = 0;
	int err = 0;

	for (int lines = 0; lines < 2 && !err; length++) {
		char c = 0;

		err = machine_take(m, &c, 1, 1);
		if (!lines)
			is_torch &= length < sizeof(torch) - 1 && c == torch[length];
		lines += c == '\n';
	}
	value.number = is_torch ? TORCH_MARK : 0;
	return err ? err : machine_push(m, value);
}

/* Something with its arguments becomes a value of no kind; what PyTorch has marked, that. */
static int reduce(struct machine *m)
{
	struct unpickle_value args, value = {0};

	if (!machine_has(m, 2))
		return machine_fail(m, -EINVAL, "too few values");
	args = *machine_top(m);
	m->stack.count--;
	if (machine_top(m)->type == UNPICKLE_NOTHING &&
		machine_top(m)->number == TORCH_MARK)
		unpickle_item(m->u, args, 0, &value);
	*machine_top(m) = value;
	return 0;
}

static int drop(struct machine *m, size_t count)
{
	if (!machine_has(m, count))
		return machine_fail(m, -EINVAL, "too few values");
	m->stack.count -= count;
	return 0;
}

static int duplicate(struct machine *m)
{
	return machine_has(m, 1) ? machine_push(m, *machine_top(m))
				 : machine_fail(m, -EINVAL, "too few values");
}

static int begin_mark(struct machine *m)
{
	if (m->marks == MACHINE_MARKS)
		return machine_fail(m, -EFBIG,
			"lists and dicts in each other, more than %d deep",
			MACHINE_MARKS);
	m->mark[m->marks++] = m->stack.count;
	return 0;
}

static int push_new(struct machine *m, bool dict)
{
	struct unpickle_value value;
	int err = machine_check(m,
		dict ? unpickle_new_dict(m->u, &value) : unpickle_new_list(m->u, &value));

	return err ? err : machine_push(m, value);
}

static int replace_some(struct machine *m, size_t count)
{
	int err = drop(m, count);

	return err ? err : machine_push(m, (struct unpickle_value){0});
}

static int tuple_of(struct machine *m, size_t count)
{
	return machine_has(m, count) ? close_tuple(m, m->stack.count + 1 - count)
				     : machine_fail(m, -EINVAL, "too few values");
}

static int pop_mark(struct machine *m)
{
	size_t from = 0;
	int err = unmark(m, &from);

	if (!err)
		m->stack.count = from - 1;
	return err;
}

/* Those that move what there is. */
int machine_move(struct machine *m, unsigned char code)
{
	switch (code) {
	case '(': /* MARK */
		return begin_mark(m);
	case '0': /* POP */
		return drop(m, 1);
	case '1': /* POP_MARK */
		return pop_mark(m);
	case '2': /* DUP */
		return duplicate(m);
	case '}': /* EMPTY_DICT */
		return push_new(m, true);
	case ']':  /* EMPTY_LIST */
	case ')':  /* EMPTY_TUPLE */
	case 0x8f: /* EMPTY_SET */
		return push_new(m, false);
	case 'd': /* DICT */
		return gather(m, true);
	case 'l':  /* LIST */
	case 't':  /* TUPLE */
	case 0x91: /* FROZENSET */
		return gather(m, false);
	case 0x85: /* TUPLE1 */
	case 0x86: /* TUPLE2 */
	case 0x87: /* TUPLE3 */
		return tuple_of(m, code - 0x84u);
	case 'a': /* APPEND */
		return fill(m, false, append, 1);
	case 'e':  /* APPENDS */
	case 0x90: /* ADDITEMS */
		return fill(m, true, append, 0);
	case 's': /* SETITEM */
		return fill(m, false, set_items, 2);
	case 'u': /* SETITEMS */
		return fill(m, true, set_items, 0);
	case 'c': /* GLOBAL */
		return take_global(m);
	case 0x93: /* STACK_GLOBAL */
	case 0x81: /* NEWOBJ */
		return replace_some(m, 2);
	case 0x92: /* NEWOBJ_EX */
		return replace_some(m, 3);
	case 'R': /* REDUCE */
		return reduce(m);
	case 'b': /* BUILD: the object stays what it was */
		return drop(m, 1);
	default:
		return machine_fail(
			m, -EINVAL, "opcode 0x%02x, which data does not have", code);
	}
}
