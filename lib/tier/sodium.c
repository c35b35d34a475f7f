/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Encryption by libsodium: see sodium.h. */
#include "tier/sodium.h"

#include "base/error.h"
#include "base/late.h"
#include "base/lock.h"
#include "base/slab.h"
#include "base/thread.h"
#include "tier/tier.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static glk_atomic(bool) no_aes;

void glk_sodium_hide_aes(bool hide)
{
	glk_store_relaxed(&no_aes, hide);
}

void *glk_sodium_room_new(size_t bytes)
{
	void *room = glk_region_new(bytes);

	if (room) {
		madvise(room, bytes, MADV_DONTDUMP);
		madvise(room, bytes, MADV_WIPEONFORK);
		/* only what is used of it */
		mlock2(room, bytes, MLOCK_ONFAULT);
	}
	return room;
}

void glk_sodium_room_free(void *room, size_t bytes)
{
	explicit_bzero(room, bytes);
	glk_region_free(room, bytes);
}

#ifdef GLK_SODIUM
#include <sodium.h>

/* 26 from 1.0.19 on. What is called of it here is the same in both, whichever this was built with. */
#define LIBSODIUM "libsodium.so.26 libsodium.so.23"

#define FUNCTIONS(F)                                                                     \
	F(sodium_init)                                                                   \
	F(randombytes_buf)                                                               \
	F(crypto_aead_aes256gcm_is_available)                                            \
	F(crypto_aead_aes256gcm_beforenm)                                                \
	F(crypto_aead_aes256gcm_encrypt_detached_afternm)                                \
	F(crypto_aead_aes256gcm_decrypt_detached_afternm)                                \
	F(crypto_aead_xchacha20poly1305_ietf_encrypt_detached)                           \
	F(crypto_aead_xchacha20poly1305_ietf_decrypt_detached)

static struct functions {
#define MEMBER(name) __typeof__(name) *name;
	FUNCTIONS(MEMBER)
#undef MEMBER
} lib;

/* The page of the key. */
static struct key {
	crypto_aead_aes256gcm_state aes;
	unsigned char plain[32];
	bool has_aes;
} * key;

static struct glk_lock loading = GLK_LOCK_INIT(GLK_RANK_TOUCH);
static glk_atomic(uint64_t) numbers;

#define PAGE ((size_t)4096)

_Static_assert(sizeof(struct key) <= PAGE &&
		crypto_aead_aes256gcm_KEYBYTES == sizeof(key->plain) &&
		crypto_aead_xchacha20poly1305_ietf_KEYBYTES == sizeof(key->plain) &&
		crypto_aead_aes256gcm_ABYTES == sizeof(((struct glk_sodium_tag *)0)->mac),
	"both have keys of one size, and such tags");

/* Stays until the process ends. */
static int make_key(void)
{
	struct key *made = mmap(
		NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (made == MAP_FAILED)
		return glk_error_native(-ENOMEM, GLAKE_ERROR_NOMEM_HOST, "mmap", errno,
			"no page for the key of security.level");
	if (mlock(made, PAGE) || madvise(made, PAGE, MADV_DONTDUMP) ||
		madvise(made, PAGE, MADV_WIPEONFORK)) {
		int err = errno;

		munmap(made, PAGE);
		return glk_error_native(-ENOMEM, GLAKE_ERROR_LIMIT, "mlock", err,
			"security.level: the page of the key cannot be locked (RLIMIT_MEMLOCK)");
	}
	lib.randombytes_buf(made->plain, sizeof(made->plain));
	made->has_aes = lib.crypto_aead_aes256gcm_is_available();
	if (made->has_aes)
		lib.crypto_aead_aes256gcm_beforenm(&made->aes, made->plain);
	key = made;
	return 0;
}

int glk_cipher_able(void)
{
#define NAME(name) #name,
	static const char *const names[] = {FUNCTIONS(NAME)};
#undef NAME
	struct functions found;
	struct glake_error why;
	int err;

	err = glk_late_load(LIBSODIUM, names, sizeof(names) / sizeof(*names), &found);
	if (err) {
		why = glk_thread_current->error;
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"security.level=3: %s", why.text);
	}
	if (found.sodium_init() < 0)
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"security.level=3: libsodium finds no random numbers");
	glk_lock(&loading);
	if (!lib.sodium_init)
		lib = found;
	err = key ? 0 : make_key();
	glk_unlock(&loading);
	return err;
}

/* A nonce is the number, and zeros. */
struct nonce {
	uint64_t number;
	unsigned char
		zeros[crypto_aead_xchacha20poly1305_ietf_NPUBBYTES - sizeof(uint64_t)];
};

static bool by_aes(void)
{
	return key->has_aes && !glk_load_relaxed(&no_aes);
}

void glk_sodium_encrypt(char *to, const char *from, size_t bytes, uint64_t bound,
	struct glk_sodium_tag *ret_tag)
{
	unsigned char *out = (unsigned char *)to;
	const unsigned char *in = (const unsigned char *)from,
			    *more = (const unsigned char *)&bound;
	struct nonce nonce = {.number = glk_add_relaxed(&numbers, 1) + 1};

	ret_tag->number = nonce.number;
	ret_tag->bytes = (uint32_t)bytes;
	if (by_aes())
		lib.crypto_aead_aes256gcm_encrypt_detached_afternm(out, ret_tag->mac,
			NULL, in, bytes, more, sizeof(bound), NULL,
			(const unsigned char *)&nonce, &key->aes);
	else
		lib.crypto_aead_xchacha20poly1305_ietf_encrypt_detached(out, ret_tag->mac,
			NULL, in, bytes, more, sizeof(bound), NULL,
			(const unsigned char *)&nonce, key->plain);
}

bool glk_sodium_decrypt(
	char *to, const char *from, uint64_t bound, const struct glk_sodium_tag *tag)
{
	unsigned char *out = (unsigned char *)to;
	const unsigned char *in = (const unsigned char *)from,
			    *more = (const unsigned char *)&bound;
	struct nonce nonce = {.number = tag->number};

	/* what is wrong becomes zeros */
	if (to == from && !glk_sodium_decrypt(NULL, from, bound, tag))
		return false;
	if (by_aes())
		return !lib.crypto_aead_aes256gcm_decrypt_detached_afternm(out, NULL, in,
			tag->bytes, tag->mac, more, sizeof(bound),
			(const unsigned char *)&nonce, &key->aes);
	return !lib.crypto_aead_xchacha20poly1305_ietf_decrypt_detached(out, NULL, in,
		tag->bytes, tag->mac, more, sizeof(bound), (const unsigned char *)&nonce,
		key->plain);
}
#else
int glk_cipher_able(void)
{
	return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
		"security.level=3: this library was built without sodium.h");
}

void glk_sodium_encrypt(char *to, const char *from, size_t bytes, uint64_t bound,
	struct glk_sodium_tag *ret_tag)
{
	(void)to;
	(void)from;
	(void)bytes;
	(void)bound;
	(void)ret_tag;
}

bool glk_sodium_decrypt(
	char *to, const char *from, uint64_t bound, const struct glk_sodium_tag *tag)
{
	(void)to;
	(void)from;
	(void)bound;
	(void)tag;
	return false;
}
#endif
