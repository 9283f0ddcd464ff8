// SPDX-License-Identifier: GPL-2.0
/*
 * QEMU plugin for 'make bench PROFILE=1': counts the instructions that the
 * guest executes, by address of the translated block. Under -icount this is
 * where guest time goes.
 *
 * Arguments: dir=DIR. A file DIR/profile.start begins to count and
 * DIR/profile.NAME.stop writes DIR/profile.NAME ("address instructions" a
 * line); each is removed when that is done, which tells the guest.
 */
#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profile-plugin.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int qemu_plugin_version = 1;

/* Blocks of one address share an entry, also when translated again. */
struct entry {
	struct entry *next;
	uint64_t vaddr;
	uint64_t count;
	uint64_t base;
};

#define BUCKETS (1 << 18)
static struct entry *table[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char dir[4096];

static struct entry *find(uint64_t vaddr)
{
	struct entry **at = &table[(vaddr ^ vaddr >> 18) % BUCKETS];

	while (*at && (*at)->vaddr != vaddr)
		at = &(*at)->next;
	if (!*at) {
		*at = calloc(1, sizeof(**at));
		if (*at)
			(*at)->vaddr = vaddr;
	}
	return *at;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	uint64_t vaddr = qemu_plugin_tb_vaddr(tb);
	struct entry *e;

	(void)id;
	/* All of user space is one entry. */
	if (!(vaddr >> 63))
		vaddr = 0;
	pthread_mutex_lock(&lock);
	e = find(vaddr);
	pthread_mutex_unlock(&lock);
	if (e)
		qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64,
							 &e->count,
							 qemu_plugin_tb_n_insns(tb));
}

/* Remembers the counts, or writes to @path what was counted since. */
static void take(const char *path)
{
	FILE *file = path ? fopen(path, "w") : NULL;
	unsigned int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < BUCKETS; i++) {
		struct entry *e;

		for (e = table[i]; e; e = e->next) {
			uint64_t n = __atomic_load_n(&e->count, __ATOMIC_RELAXED);

			if (!path)
				e->base = n;
			else if (file && n != e->base)
				fprintf(file, "%" PRIx64 " %" PRIu64 "\n",
					e->vaddr, n - e->base);
		}
	}
	pthread_mutex_unlock(&lock);
	if (file)
		fclose(file);
}

static void *watch(void *unused)
{
	char path[8192];

	(void)unused;
	for (;; usleep(2000)) {
		DIR *d = opendir(dir);
		struct dirent *e;

		if (!d)
			continue;
		while ((e = readdir(d))) {
			size_t n = strlen(e->d_name);

			if (strncmp(e->d_name, "profile.", 8))
				continue;
			snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
			if (!strcmp(e->d_name, "profile.start")) {
				take(NULL);
				unlink(path);
			} else if (n > 13 && !strcmp(e->d_name + n - 5, ".stop")) {
				char out[8192];

				snprintf(out, sizeof(out), "%s", path);
				out[strlen(out) - 5] = '\0';
				take(out);
				unlink(path);
			}
		}
		closedir(d);
	}
	return NULL;
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info,
			       int argc, char **argv)
{
	pthread_t thread;
	int i;

	(void)info;
	for (i = 0; i < argc; i++)
		if (!strncmp(argv[i], "dir=", 4))
			snprintf(dir, sizeof(dir), "%s", argv[i] + 4);
	if (!dir[0] || pthread_create(&thread, NULL, watch, NULL)) {
		fprintf(stderr, "profile-plugin: needs dir=DIR and a thread\n");
		return -1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
