/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_SODIUM_H
#define GLK_TIER_SODIUM_H

/*
 * Bytes encrypted and what they were again, by libsodium, which is loaded when security.level first asks for it.
 * AES256-GCM where the processor has instructions for it, else XChaCha20-Poly1305: a thread makes 1.7 GB/s of
 * the one and 1.3 of the other.
 *
 * Key		one a process, made at random when it is first asked for. It lies in a page that is locked, in no core
 *		dump, and empty in a forked child, and is written nowhere else
 * Nonce	a number that no other encryption of the process has, since the key is the process's alone
 */
#include "base/atomic.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What bytes are decrypted with, beside the key. */
struct glk_sodium_tag {
	uint64_t number; /* of the encryption; 0: they are as they were */
	uint32_t bytes;
	unsigned char mac[16];
};

/* As many bytes, at the same place or elsewhere, bound to a number of the caller's. Any thread. */
void glk_sodium_encrypt(char *to, const char *from, size_t bytes, uint64_t bound,
	struct glk_sodium_tag *ret_tag);
/* False: they, their tag or the number are not what they were; where it is not in place there are zeros then. `to` NULL:
 * they are only checked. */
bool glk_sodium_decrypt(
	char *to, const char *from, uint64_t bound, const struct glk_sodium_tag *tag);

/* Memory for bytes that are plain while they are worked on: in no core dump, empty in a forked child, and locked as far as
 * RLIMIT_MEMLOCK allows. It is filled with zeros before it goes. NULL, with a record. */
void *glk_sodium_room_new(size_t bytes);
void glk_sodium_room_free(void *room, size_t bytes);

/* For tests: the processor has no such instructions from now on, or again. */
void glk_sodium_hide_aes(bool hide);

#endif
