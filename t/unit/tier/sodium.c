/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Bytes that are encrypted and what they were again, and what is not decrypted. */
#include "tier/sodium.h"

#include "base/late.h"
#include "base/thread.h"
#include "seed.h"
#include "tier/tier.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST ((size_t)256 << 10)

static char *from, *hidden, *back;

static void fill(size_t bytes)
{
	uint64_t state = seed_thread(seed_start(), 1);

	for (size_t i = 0; i < bytes; i++)
		from[i] = (char)seed_below(&state, 256);
}

/* A byte more than they have is as it was. */
static bool comes_back(size_t bytes)
{
	struct glk_sodium_tag tag;

	memset(hidden, 0x5a, bytes + 1);
	memset(back, 0x5a, bytes + 1);
	glk_sodium_encrypt(hidden, from, bytes, 7, &tag);
	return tag.bytes == bytes && hidden[bytes] == 0x5a &&
		glk_sodium_decrypt(NULL, hidden, 7, &tag) &&
		glk_sodium_decrypt(back, hidden, 7, &tag) && !memcmp(back, from, bytes) &&
		back[bytes] == 0x5a;
}

/* Whether the bytes are found in others, anywhere. */
static bool shows(size_t bytes)
{
	return memmem(hidden, bytes, from, 16) != NULL;
}

static void sizes(const char *how)
{
	static const size_t list[] = {1, 15, 16, 17, 4096, MOST - 1, MOST};
	int torn = 0;

	for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++)
		torn += !comes_back(list[i]);
	ok(!torn, "%s: whatever was encrypted comes back", how);
	comes_back(4096);
	ok(!shows(4096), "  and does not show");
}

static void in_place(const char *how)
{
	struct glk_sodium_tag tag;

	memcpy(hidden, from, 4096);
	glk_sodium_encrypt(hidden, hidden, 4096, 7, &tag);
	ok(!shows(4096), "%s: in place too", how);
	hidden[9] ^= 1;
	memcpy(back, hidden, 4096);
	ok(!glk_sodium_decrypt(hidden, hidden, 7, &tag) && !memcmp(back, hidden, 4096),
		"  what was changed is not decrypted, and stays");
	hidden[9] ^= 1;
	ok(glk_sodium_decrypt(hidden, hidden, 7, &tag) && !memcmp(hidden, from, 4096),
		"  what it was is");
}

static void changed(const char *how)
{
	struct glk_sodium_tag tag, other;
	int taken = 0;

	glk_sodium_encrypt(hidden, from, 1000, 7, &tag);
	glk_sodium_encrypt(back, from, 1000, 7, &other);
	ok(tag.number != other.number && memcmp(hidden, back, 1000),
		"%s: equal bytes differ each time", how);
	taken += glk_sodium_decrypt(back, hidden, 7, &other);
	taken += glk_sodium_decrypt(back, hidden, 8, &tag);
	for (size_t i = 0; i < 1000; i += 37) {
		hidden[i] ^= 4;
		taken += glk_sodium_decrypt(back, hidden, 7, &tag);
		hidden[i] ^= 4;
	}
	for (size_t i = 0; i < sizeof(tag.mac); i++) {
		tag.mac[i] ^= 1;
		taken += glk_sodium_decrypt(back, hidden, 7, &tag);
		tag.mac[i] ^= 1;
	}
	tag.bytes--;
	taken += glk_sodium_decrypt(back, hidden, 7, &tag);
	tag.bytes++;
	ok(!taken, "  none that was changed, cut or moved is decrypted");
	ok(glk_sodium_decrypt(back, hidden, 7, &tag), "  and what it was is");
}

/* A child has no key: what it would decrypt with that is not what it was. Nor has it what was worked on. */
static void forked(void)
{
	char *room = glk_sodium_room_new(1000);
	struct glk_sodium_tag tag;
	int status = 1;
	pid_t pid;

	if (!room)
		tap_bail("no memory");
	memcpy(room, from, 1000);
	glk_sodium_encrypt(hidden, from, 1000, 7, &tag);
	pid = fork();
	if (!pid)
		_exit(glk_sodium_decrypt(back, hidden, 7, &tag) ||
			memcmp(room, room + 1, 999) || *room);
	waitpid(pid, &status, 0);
	ok(WIFEXITED(status) && !WEXITSTATUS(status), "a forked child has no key");
	glk_sodium_room_free(room, 1000);
	ok(glk_sodium_decrypt(back, hidden, 7, &tag), "  its parent has");
}

#ifdef GLK_SODIUM
#define MISSING "libsodium.so.23"
#else
#define MISSING "sodium.h"
#endif

static void is_missing(void)
{
	glk_late_hide(1);
	is_int(glk_cipher_able(), -EOPNOTSUPP, "without libsodium");
	ok(strstr(glk_thread_current->error.text, MISSING), "  it is named: %s",
		glk_thread_current->error.text);
	glk_late_hide(0);
}

int main(void)
{
	static const char *const how[] = {"as the processor can", "without AES"};

	tap_plan_later();
	is_missing();
	if (glk_cipher_able()) {
		tap_skip("bytes are encrypted", "the library has no libsodium");
		return tap_done();
	}
	from = malloc(MOST + 1);
	hidden = malloc(MOST + 1);
	back = malloc(MOST + 1);
	if (!from || !hidden || !back)
		tap_bail("no memory");
	fill(MOST);
	for (int i = 0; i < 2; i++) {
		glk_sodium_hide_aes(i);
		sizes(how[i]);
		in_place(how[i]);
		changed(how[i]);
	}
	glk_sodium_hide_aes(false);
	forked();
	is_int(glk_cipher_able(), 0, "once more, with the same key");
	free(from);
	free(hidden);
	free(back);
	return tap_done();
}
