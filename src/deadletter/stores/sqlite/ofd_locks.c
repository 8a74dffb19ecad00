/*
 * File locks for SQLite that no close() can drop.
 *
 * SQLite locks with fcntl(F_SETLK). The kernel drops such locks of a process as soon as
 * that process closes any descriptor of the file: open("shop.db") and close() in a
 * handler are enough. This library replaces three system calls of SQLite's unix VFS:
 *
 *   fcntl  locks go, as open file description (OFD) locks, to a private descriptor.
 *          There is one for each inode, because SQLite expects that locks belong to
 *          the process: one connection may release what another one took.
 *   close  closes the private descriptor with the last descriptor that SQLite has of
 *          the inode. SQLite releases one lock of the -shm file in no other way.
 *   open   forgets what was known of a descriptor number that is used again.
 *
 * A forked child closes its copies of the private descriptors and opens new ones when
 * it locks: it owns none of its parent's locks and can release none of them.
 */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The ABI of sqlite3_vfs, version 3, from sqlite3.h. */
typedef void (*syscall_ptr)(void);
struct vfs {
    int version;
    int file_size;
    int path_size;
    struct vfs *next;
    const char *name;
    void *data;
    syscall_ptr methods[13]; /* xOpen to xCurrentTimeInt64 */
    int (*set_system_call)(struct vfs *, const char *, syscall_ptr);
    syscall_ptr (*get_system_call)(struct vfs *, const char *);
};

/* Results of dlq_ofd_install(), named again in file_locks.py. */
enum { INSTALLED = 0, NO_SYSTEM_CALLS = 1, NO_MEMORY = 2, NO_PROC = 3 };

/* Bytes that SQLite locks: of a database, and of its -shm file. */
#define DATABASE_FIRST 0x40000000LL
#define DATABASE_LAST (DATABASE_FIRST + 511)
#define SHM_FIRST 120LL
#define SHM_LAST 128LL

struct inode {
    dev_t device;
    ino_t number;
    int private_fd; /* -1: not open yet in this process */
    int users;      /* descriptors of SQLite that have locked it */
    int keeps_posix; /* its locks stay as SQLite asks for them */
    struct inode *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* over all that follows */
static struct inode *inodes;
static struct inode **by_fd; /* index: a descriptor of SQLite */
static int by_fd_size;
static int is_installed;

static int (*sqlite_fcntl)(int, int, ...);
static int (*sqlite_close)(int);
static int (*sqlite_open)(const char *, int, int);

static int open_private(int fd)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    /* For writing even if SQLite only reads: it may want to write later. */
    int opened = open(path, O_RDWR | O_CLOEXEC);
    if (opened < 0 && (errno == EACCES || errno == EPERM || errno == EROFS))
        opened = open(path, O_RDONLY | O_CLOEXEC);
    return opened;
}

static struct inode *find(const struct stat *found)
{
    struct inode *one = inodes;
    while (one && (one->device != found->st_dev || one->number != found->st_ino))
        one = one->next;
    return one;
}

/* Return the inode of a descriptor of SQLite, or NULL with errno set. */
static struct inode *inode_of(int fd)
{
    if (fd < 0) {
        errno = EBADF;
        return NULL;
    }
    if (fd < by_fd_size && by_fd[fd])
        return by_fd[fd];
    if (fd >= by_fd_size) {
        int size = fd + 64;
        struct inode **larger = realloc(by_fd, size * sizeof *by_fd);
        if (!larger)
            return NULL;
        memset(larger + by_fd_size, 0, (size - by_fd_size) * sizeof *by_fd);
        by_fd = larger;
        by_fd_size = size;
    }
    struct stat found;
    if (fstat(fd, &found))
        return NULL;
    struct inode *one = find(&found);
    if (!one) {
        one = calloc(1, sizeof *one);
        if (!one)
            return NULL;
        one->device = found.st_dev;
        one->number = found.st_ino;
        one->private_fd = -1;
        one->next = inodes;
        inodes = one;
    }
    one->users++;
    by_fd[fd] = one;
    return one;
}

static void forget(int fd)
{
    struct inode *one = fd >= 0 && fd < by_fd_size ? by_fd[fd] : NULL;
    if (!one)
        return;
    by_fd[fd] = NULL;
    if (--one->users)
        return;
    if (one->private_fd >= 0)
        close(one->private_fd);
    struct inode **link = &inodes;
    while (*link != one)
        link = &(*link)->next;
    *link = one->next;
    free(one);
}

/* Return the private descriptor of an inode, -1 with errno set if there is none. */
static int private_of(struct inode *one, int fd)
{
    if (one->private_fd < 0 && !one->keeps_posix) {
        one->private_fd = open_private(fd);
        struct flock probe = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
        if (one->private_fd >= 0 && fcntl(one->private_fd, F_OFD_GETLK, &probe) &&
            errno == EINVAL) { /* this kernel or file system has no such locks */
            close(one->private_fd);
            one->private_fd = -1;
            one->keeps_posix = 1;
        }
    }
    return one->private_fd;
}

static int own_fcntl(int fd, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    int instead = command == F_SETLK    ? F_OFD_SETLK
                  : command == F_SETLKW ? F_OFD_SETLKW
                  : command == F_GETLK  ? F_OFD_GETLK
                                        : 0;
    if (!instead)
        return sqlite_fcntl(fd, command, argument);
    pthread_mutex_lock(&mutex);
    struct inode *one = inode_of(fd);
    int keeps_posix = 0, target = -1;
    if (one) {
        target = private_of(one, fd);
        keeps_posix = one->keeps_posix;
    }
    pthread_mutex_unlock(&mutex);
    if (keeps_posix)
        return sqlite_fcntl(fd, command, argument);
    if (target < 0)
        return -1; /* refused rather than unprotected */
    /* SQLite keeps `fd` open meanwhile, and so `target` stays open. */
    ((struct flock *)argument)->l_pid = 0;
    return sqlite_fcntl(target, instead, argument);
}

static int own_close(int fd)
{
    pthread_mutex_lock(&mutex);
    forget(fd);
    pthread_mutex_unlock(&mutex);
    return sqlite_close(fd);
}

static int own_open(const char *path, int flags, int mode)
{
    int fd = sqlite_open(path, flags, mode);
    if (fd >= 0) {
        int kept = errno;
        pthread_mutex_lock(&mutex);
        forget(fd); /* somebody closed it behind SQLite's back */
        pthread_mutex_unlock(&mutex);
        errno = kept;
    }
    return fd;
}

static int is_of_sqlite(long long first, long long last)
{
    return (first >= DATABASE_FIRST && last <= DATABASE_LAST) ||
           (first >= SHM_FIRST && last <= SHM_LAST);
}

/*
 * Take over the locks of one kind, "WRITE" or "READ", that connections took through
 * `fd` before this library was there. An inode with a write lock keeps its POSIX locks
 * until SQLite has closed it: two locks cannot be held for writing. Read locks move.
 */
static void take_over(int fd, const char *wanted)
{
    char path[40], line[256], kind[8];
    long long first, last;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *info = fopen(path, "re");
    while (info && fgets(line, sizeof line, info)) {
        if (sscanf(line, "lock: %*s POSIX %*s %7s %*s %*s %lld %lld", kind, &first,
                   &last) != 3 ||
            strcmp(kind, wanted) || !is_of_sqlite(first, last))
            continue;
        struct inode *one = inode_of(fd);
        if (!one || one->keeps_posix)
            continue;
        struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET,
                             .l_start = first, .l_len = last - first + 1};
        if (!strcmp(wanted, "WRITE") || private_of(one, fd) < 0)
            one->keeps_posix = 1;
        else if (!fcntl(one->private_fd, F_OFD_SETLK, &lock)) {
            lock.l_type = F_UNLCK;
            fcntl(fd, F_SETLK, &lock);
        }
    }
    if (info)
        fclose(info);
}

static void take_over_all(DIR *descriptors, const char *kind)
{
    rewinddir(descriptors);
    for (struct dirent *entry; (entry = readdir(descriptors));)
        if (entry->d_name[0] != '.')
            take_over(atoi(entry->d_name), kind);
}

static void before_fork(void) { pthread_mutex_lock(&mutex); }
static void after_fork(void) { pthread_mutex_unlock(&mutex); }
static void after_fork_in_child(void)
{
    for (struct inode *one = inodes; one; one = one->next) {
        if (one->private_fd >= 0)
            close(one->private_fd);
        one->private_fd = -1;
    }
    pthread_mutex_unlock(&mutex);
}

/* Replace the system calls of SQLite. Once in a process; never undone. */
int dlq_ofd_install(struct vfs *unix_vfs)
{
    if (is_installed)
        return INSTALLED;
    if (!unix_vfs || unix_vfs->version < 3)
        return NO_SYSTEM_CALLS;
    sqlite_fcntl = (int (*)(int, int, ...))unix_vfs->get_system_call(unix_vfs, "fcntl");
    sqlite_close = (int (*)(int))unix_vfs->get_system_call(unix_vfs, "close");
    sqlite_open = (int (*)(const char *, int, int))unix_vfs->get_system_call(unix_vfs, "open");
    if (!sqlite_fcntl || !sqlite_close || !sqlite_open)
        return NO_SYSTEM_CALLS;
    DIR *descriptors = opendir("/proc/self/fd");
    if (!descriptors)
        return NO_PROC;
    if (pthread_atfork(before_fork, after_fork, after_fork_in_child)) {
        closedir(descriptors);
        return NO_MEMORY;
    }
    pthread_mutex_lock(&mutex); /* other threads wait here before they lock again */
    unix_vfs->set_system_call(unix_vfs, "open", (syscall_ptr)own_open);
    unix_vfs->set_system_call(unix_vfs, "close", (syscall_ptr)own_close);
    unix_vfs->set_system_call(unix_vfs, "fcntl", (syscall_ptr)own_fcntl);
    usleep(1000); /* for whoever was inside the old calls */
    take_over_all(descriptors, "WRITE");
    take_over_all(descriptors, "READ");
    is_installed = 1;
    pthread_mutex_unlock(&mutex);
    closedir(descriptors);
    return INSTALLED;
}

/* Tell whether the locks of an inode that SQLite has open survive any close(). */
int dlq_ofd_holds(unsigned long long device, unsigned long long number)
{
    struct stat wanted = {.st_dev = device, .st_ino = number};
    pthread_mutex_lock(&mutex);
    struct inode *one = find(&wanted);
    int holds = one && one->private_fd >= 0 && !one->keeps_posix;
    pthread_mutex_unlock(&mutex);
    return holds;
}
