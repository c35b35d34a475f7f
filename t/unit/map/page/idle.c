/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which idle pages are met, in which order, and what a function may do with them meanwhile. */
#include "unit/map/rig.h"

#define PAGES  16
#define GROUPS 12

static struct rig rig;
static uint32_t page[PAGES];

static void start(void)
{
	rig_init(&rig);
	rig_raise(&rig, 64 * GROUPS);
	memset(page, 0, sizeof(page));
}

/* A slot of a group. */
static uint32_t slot(uint32_t group, uint32_t i)
{
	return 64 * group + i;
}

static void make(uint32_t i, uint32_t at, uint32_t slots)
{
	page[i] = rig_new(&rig, at, slots);
}

static void use(uint32_t at)
{
	rig_free(&rig, rig_enter(&rig, S(at), S(1)));
}

struct walk {
	char met[64];
	uint32_t count;
	char stop; /* at this letter */
	void (*act)(uint32_t page);
};

static enum glk_idle_answer meet(struct glk_map *map, uint32_t id, void *arg)
{
	struct walk *w = arg;
	char letter = '?';

	for (uint32_t i = 0; i < PAGES; i++)
		letter = page[i] == id ? (char)('a' + i) : letter;
	if (w->count < sizeof(w->met) - 1)
		w->met[w->count++] = letter;
	if (w->act)
		w->act(id);
	return letter == w->stop ? GLK_IDLE_STOP : GLK_IDLE_NEXT;
}

/* The letters of the pages that a walk meets. */
static const char *walk(struct glk_idle_walk how, char stop, void (*act)(uint32_t page))
{
	static struct walk w;

	w = (struct walk){.stop = stop, .act = act};
	if (!how.groups)
		how.groups = UINT32_MAX;
	glk_idle_each(&rig.map, &how, meet, &w);
	return w.met;
}

#define HOW(...) ((struct glk_idle_walk){__VA_ARGS__})
#define met(...) walk(HOW(__VA_ARGS__), 0, NULL)

static void test_order(void)
{
	start();
	is_str(met(), "", "none");
	make(0, slot(2, 5), 1);
	make(1, slot(0, 8), 1);
	make(2, slot(1, 0), 1);
	make(3, slot(0, 1), 4);
	is_str(met(), "acdb", "by group, the oldest first, and by slot inside");
	is_int((int64_t)rig.map.space->of[0].idle_slots, 7, "seven slots");
	ok(rig_sound(&rig), "sound");
	use(slot(2, 5));
	is_str(met(), "cdba", "one that was used makes its group the newest");
	use(slot(0, 8));
	is_str(met(), "cadb", "and the others of its group with it");
	use(slot(0, 8));
	is_str(met(), "cadb", "again");
	is_str(met(.slots = 1), "cab", "those of one slot alone");
	is_str(met(.slots = 4), "d", "those of four");
	is_str(met(.slots = 7), "", "none has seven");
	is_str(met(.groups = 2), "ca", "two groups alone");
	is_str(walk(HOW(0), 'a', NULL), "ca", "until it is enough");
	is_str(met(), "cadb", "which changes nothing");
	rig_enter(&rig, S(slot(0, 1)), S(1));
	is_str(met(), "cab", "one in use is not idle, wherever it is");
	glk_page_take(&rig.map, page[0]);
	is_str(met(), "cb", "nor one that is taken");
	glk_page_put_back(&rig.map, page[0]);
	is_str(met(), "cba", "put back, it is the newest");
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

/* A group leaves the list when nothing is idle in it, and comes back. */
static void test_unlisted(void)
{
	uint32_t id[3];

	start();
	for (uint32_t i = 0; i < 3; i++)
		make(i, slot(i, 0), 1);
	for (uint32_t i = 0; i < 3; i++) {
		id[i] = rig_enter(&rig, S(slot(i, 0)), S(1));
		is_str(met(), i == 0 ? "bc" : i == 1 ? "c" : "", "one more is in use");
		ok(rig_sound(&rig), "sound");
	}
	ok(!glk_idle_oldest(rig.space.of) && !glk_idle_newest(rig.space.of),
		"the list is empty");
	rig_free(&rig, id[1]);
	is_str(met(), "b", "one is left");
	rig_free(&rig, id[2]);
	rig_free(&rig, id[0]);
	is_str(met(), "bca", "and another, and the last");
	id[2] = rig_enter(&rig, S(slot(2, 0)), S(1));
	is_str(met(), "ba", "from the middle");
	rig_free(&rig, id[2]);
	is_str(met(), "bac", "to the end");
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

static void take(uint32_t id)
{
	glk_page_take(&rig.map, id);
}

static void take_down(uint32_t id)
{
	struct glk_page *p = rig_page(&rig, id);

	glk_page_take(&rig.map, id);
	while (p->aliases) {
		if (glk_mapping_remove(&rig.map, p->first_alias,
			    p->first_alias + glk_page_slots(&rig.map, p) - 1))
			tap_bail("no unmap");
	}
	glk_node_release(rig.map.node, id);
}

static void fill(void)
{
	start();
	make(0, slot(0, 0), 1);
	make(1, slot(0, 1), 7);
	make(2, slot(0, 62), 4);
	make(3, slot(1, 2), 1);
	make(4, slot(2, 0), 64);
	make(5, slot(4, 7), 4);
}

static void test_acts(void)
{
	fill();
	is_str(walk(HOW(0), 0, take), "abcdef", "each is taken as it is met");
	is_int((int64_t)rig.map.space->of[0].idle_slots, 0, "none is idle");
	is_str(met(), "", "nor met again");
	for (int i = 0; i < 6; i++)
		glk_page_put_back(&rig.map, page[i]);
	is_str(met(), "abcdef", "until it is put back");
	ok(rig_sound(&rig), "sound");
	is_str(walk(HOW(.slots = 4), 0, take_down), "cf", "two are taken down");
	is_str(met(), "abde", "four are left");
	ok(rig_sound(&rig), "sound");
	is_str(walk(HOW(0), 'd', take_down), "abd", "three more, until it is enough");
	is_str(met(), "e", "one is left");
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

int main(void)
{
	tap_plan_later();
	test_order();
	test_unlisted();
	test_acts();
	return tap_done();
}
