/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Any bytes as a question: no crash, and an answer is one line of JSON, or none.
 *
 *	CC=clang meson setup build-fuzz -Dfuzz=true && ninja -C build-fuzz t/fuzz/fuzz-rpc
 *	build-fuzz/t/fuzz/fuzz-rpc -max_len=4096 -max_total_time=60
 */
#include "watch/rpc.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition)                                                                  \
	do {                                                                             \
		if (!(condition))                                                        \
			abort();                                                         \
	} while (0)

static void say_back(struct glk_rpc_call *call)
{
	const char *text = NULL;
	uint64_t number = 0;
	bool flag = false;
	bool is_flag = glk_rpc_bool(call, "flag", &flag);
	bool is_number = glk_rpc_number(call, "number", 1000, &number);
	bool is_text = glk_rpc_text(call, "text", &text);

	MUST(!is_number || number <= 1000);
	MUST(!is_text || text);
	MUST(is_flag || !flag);
	if (glk_rpc_failed(call))
		return;
	glk_json_object(glk_rpc_result(call));
	glk_json_add_uint(glk_rpc_result(call), "number", number);
	glk_json_add_text(glk_rpc_result(call), "text", text);
	if (glk_rpc_is_null(call, "text"))
		glk_rpc_fail(call, GLK_RPC_REFUSED, "half way");
	glk_json_end(glk_rpc_result(call));
}

static const struct glk_rpc_method methods[] = {
	{"say", {"number", "text", "flag"}, say_back}, {"nothing", {0}, say_back}, {0}};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char answer[8192], small[256];
	struct json_object *all;
	size_t used;

	MUST(!glk_rpc_init());
	used = glk_rpc_answer(methods, (const char *)data, size, answer, sizeof(answer));
	MUST(used < sizeof(answer));
	if (used) {
		MUST(memchr(answer, '\n', used) == answer + used - 1);
		answer[used - 1] = '\0';
		all = json_tokener_parse(answer);
		MUST(json_object_is_type(all, json_type_object));
		json_object_put(all);
	}
	used = glk_rpc_answer(methods, (const char *)data, size, small, sizeof(small));
	MUST(used < sizeof(small) && (!used || small[used - 1] == '\n'));
	return 0;
}
