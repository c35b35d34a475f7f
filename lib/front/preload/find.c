/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The ways by which a program comes to a function of the driver, all of which end at ours.
 *
 * dlsym answers for the library that contains its caller when asked for RTLD_NEXT, and in the
 * scope of its caller for RTLD_DEFAULT, and tells the caller by the return address. So ours is
 * written in assembly: it asks glk_preload_answer, and where that has no answer it jumps to the
 * real one with the stack and the arguments as they came. Whoever looks for a function by
 * RTLD_NEXT means one behind himself, and gets that. While the driver is not loaded there is no
 * function of it, ours among them.
 *
 * A function of the driver is recognised by its address. A wrapper of the same name in another
 * library is that library's, a newer version of a function is the driver's, and both are left
 * alone.
 */
#include "front/preload/preload.h"

#include <dlfcn.h>
#include <string.h>

enum { LEGACY = GLK_CU_PROC_LEGACY_STREAM, THREAD = GLK_CU_PROC_THREAD_STREAM };
enum group { ALWAYS, EVENTS };

struct hook {
	const char *name, *symbol;
	int version;
	uint64_t flags;
	enum group group;
	void *fn;
};

static const struct hook hooks[] = {
#define HOOK(fn, symbol, version, streams, group, parameters, arguments)                 \
	{#fn, #symbol, version, streams, group, (void *)fn},
	GLK_PRELOAD_HOOKS(HOOK)
#undef HOOK
};

/* What cuGetProcAddress gives for each; constant once published. */
static void *by_proc[GLK_PRELOAD_COUNT];
static glk_atomic(bool) asked;

const char *glk_preload_name(enum glk_preload_id id)
{
	return hooks[id].name;
}

static bool wanted(const struct hook *hook)
{
	return hook->group == ALWAYS || glk_preload_conf()->events;
}

static const struct hook *by_name(const char *name)
{
	for (size_t i = 0; i < GLK_PRELOAD_COUNT; i++)
		if (!strcmp(name, hooks[i].name))
			return &hooks[i];
	return NULL;
}

/*
 * Where nobody has loaded the driver a program shall not find ours, and learn that there is CUDA.
 * What is found then of that name lies behind us, or is a reason in dlerror.
 */
static bool is_absent(glk_preload_dlsym_fn *next, void *handle, const struct hook *hook)
{
	if (glk_preload_driver())
		return false;
	return handle == RTLD_DEFAULT || next(handle, hook->name) == hook->fn;
}

/* What dlsym returns: `found`, unless `next` is not NULL, which is then to be asked. */
struct answer {
	void *found;
	glk_preload_dlsym_fn *next;
};

/* Our function in place of what `next` finds in the driver; NULL to leave that. */
static void *search(glk_preload_dlsym_fn *next, void *handle, const struct hook *hook)
{
	const char *name = hook->name;
	void *driver, *found;

	if (!glk_preload_active() || glk_preload_inside || handle == RTLD_DEFAULT)
		return NULL;
	driver = glk_preload_driver();
	if (!driver || !wanted(hook))
		return NULL;
	found = next(handle, name);
	if (!found || found != next(driver, name))
		return NULL;
	if (!(glk_preload_routes(hook - hooks) & GLK_PRELOAD_BY_DLSYM))
		glk_preload_log(GLAKE_LOG_DEBUG, "dlsym: %s", name);
	glk_preload_reach(hook - hooks, GLK_PRELOAD_BY_DLSYM);
	return hook->fn;
}

__attribute__((used)) GLK_PRELOAD_EARLY struct answer glk_preload_answer(
	void *handle, const char *name);

GLK_PRELOAD_EARLY struct answer glk_preload_answer(void *handle, const char *name)
{
	struct answer answer = {NULL, glk_preload_dlsym()};
	const struct hook *hook;

	if (!answer.next || !name || handle == RTLD_NEXT)
		return answer;
	if (name[0] == 'n' && name[1] == 'v') {
		if (glk_preload_nvml_find(answer.next, handle, name, &answer.found))
			answer.next = NULL;
		return answer;
	}
	if (name[0] != 'c' || name[1] != 'u')
		return answer;
	hook = by_name(name);
	if (!hook)
		return answer;
	if (is_absent(answer.next, handle, hook)) {
		answer.found = answer.next(RTLD_NEXT, name);
		answer.next = NULL;
		return answer;
	}
	answer.found = search(answer.next, handle, hook);
	if (answer.found)
		answer.next = NULL;
	return answer;
}

#if defined(__x86_64__)
__asm__(".text\n"
	".globl dlsym\n"
	".type dlsym, @function\n"
	"dlsym:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	pushq %rdi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	pushq %rsi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	subq $8, %rsp\n" /* a call wants it at a multiple of 16 */
	"	.cfi_adjust_cfa_offset 8\n"
	"	call glk_preload_answer\n"
	"	addq $8, %rsp\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq %rsi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq %rdi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	testq %rdx, %rdx\n"
	"	jnz 1f\n"
	"	ret\n"
	"1:	jmp *%rdx\n"
	"	.cfi_endproc\n"
	".size dlsym, . - dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n"
	".globl dlsym\n"
	".type dlsym, %function\n"
	"dlsym:\n"
	"	.cfi_startproc\n"
	"	hint #34\n" /* bti c */
	"	stp x29, x30, [sp, #-32]!\n"
	"	.cfi_def_cfa_offset 32\n"
	"	.cfi_offset 29, -32\n"
	"	.cfi_offset 30, -24\n"
	"	mov x29, sp\n"
	"	stp x0, x1, [sp, #16]\n"
	"	bl glk_preload_answer\n"
	"	mov x16, x1\n"
	"	cbz x16, 1f\n"
	"	ldp x0, x1, [sp, #16]\n"
	"1:	ldp x29, x30, [sp], #32\n"
	"	.cfi_restore 30\n"
	"	.cfi_restore 29\n"
	"	.cfi_def_cfa_offset 0\n"
	"	cbz x16, 2f\n"
	"	br x16\n"
	"2:	ret\n"
	"	.cfi_endproc\n"
	".size dlsym, . - dlsym\n");
#else
#error "dlsym has to pass its caller's return address on: write it for this machine"
#endif

/* Asks for every function that we stand in front of, as the entry point at hand can. */
static void ask(const struct glk_preload_next *next)
{
	glk_cu_proc_status status = GLK_CU_PROC_FOUND;
	void *fn;

	if (glk_load_acquire(&asked)) /* pairs with: the release below */
		return;
	pthread_mutex_lock(&glk_preload_lock);
	for (size_t i = 0; i < GLK_PRELOAD_COUNT && !glk_load_relaxed(&asked); i++) {
		const struct hook *h = &hooks[i];
		glk_cu_result result;

		fn = NULL;
		result = next->cuGetProcAddress_v2
			? next->cuGetProcAddress_v2(
				  h->symbol, &fn, h->version, h->flags, &status)
			: next->cuGetProcAddress(h->symbol, &fn, h->version, h->flags);
		by_proc[i] = result || status != GLK_CU_PROC_FOUND ? NULL : fn;
	}
	glk_store_release(&asked, true);
	pthread_mutex_unlock(&glk_preload_lock);
}

/* The functions behind ours lie in a table in the order of the hooks. */
static void *behind(const struct glk_preload_next *next, size_t id)
{
	static const size_t at[] = {
#define AT(fn, symbol, version, streams, group, parameters, arguments)                   \
	offsetof(struct glk_preload_next, fn),
		GLK_PRELOAD_HOOKS(AT)
#undef AT
	};
	void *fn;

	memcpy(&fn, (const char *)next + at[id], sizeof(fn));
	return fn;
}

static void replace(const struct glk_preload_next *next, const char *symbol, void **fn)
{
	if (!fn || !*fn)
		return;
	ask(next);
	for (size_t i = 0; i < GLK_PRELOAD_COUNT; i++) {
		if ((*fn != by_proc[i] && *fn != behind(next, i)) || !wanted(&hooks[i]))
			continue;
		if (!(glk_preload_routes(i) & GLK_PRELOAD_BY_PROC))
			glk_preload_log(GLAKE_LOG_DEBUG, "cuGetProcAddress: %s is %s",
				symbol, hooks[i].name);
		glk_preload_reach(i, GLK_PRELOAD_BY_PROC);
		*fn = hooks[i].fn;
		return;
	}
}

glk_cu_result cuGetProcAddress(const char *symbol, void **fn, int version, uint64_t flags)
{
	bool serves = glk_preload_called(GLK_PRELOAD_cuGetProcAddress);
	glk_cu_result result =
		GLK_PRELOAD_PASS(cuGetProcAddress, symbol, fn, version, flags);

	if (!result && serves)
		replace(glk_preload_next(), symbol, fn);
	return result;
}

glk_cu_result cuGetProcAddress_v2(const char *symbol, void **fn, int version,
	uint64_t flags, glk_cu_proc_status *status)
{
	bool serves = glk_preload_called(GLK_PRELOAD_cuGetProcAddress_v2);
	glk_cu_result result =
		GLK_PRELOAD_PASS(cuGetProcAddress_v2, symbol, fn, version, flags, status);

	if (!result && serves)
		replace(glk_preload_next(), symbol, fn);
	return result;
}
