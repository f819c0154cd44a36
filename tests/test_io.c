/* test_io.c - durable writes, opening beneath a root, removal without following links, hashes. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/scratch.h"
#include "tests/tap.h"
#include "trainer/base/sha256.h"

static void reads_a_whole_file_up_to_a_cap(void)
{
    struct err err = {0};
    char *text = NULL;
    size_t n = 0;

    put_file(in_scratch("five"), "ab\0de", 5);
    EXPECT(io_read_file(&text, &n, in_scratch("five"), 5, &err) == 0);
    EXPECT(n == 5 && memcmp(text, "ab\0de", 6) == 0);
    free(text);
    EXPECT(io_read_file(&text, &n, in_scratch("five"), 4, &err) == ERR_TOO_LARGE && text == NULL);
    EXPECT(io_read_file(&text, &n, in_scratch("none"), 4, &err) == ERR_NOT_FOUND);
    EXPECT(io_read_file(&text, &n, scratch, 4, &err) == ERR_IO);
    CHECK(mkfifo(in_scratch("fifo"), 0600) == 0, "no fifo");
    EXPECT(io_read_file(&text, &n, in_scratch("fifo"), 4, &err) == ERR_IO); /* and does not wait */
    put_text(in_scratch("empty"), "");
    EXPECT(io_read_file(&text, &n, in_scratch("empty"), 0, &err) == 0 && n == 0 && text[0] == '\0');
    free(text);
}

static void reads_exactly_what_is_asked(void)
{
    struct err err = {0};
    char got[4] = "";

    put_text(in_scratch("part"), "0123456789");
    const int fd = open(in_scratch("part"), O_RDONLY | O_CLOEXEC);
    EXPECT(io_read_at(fd, got, 3, 7, "part", &err) == 0 && strcmp(got, "789") == 0);
    EXPECT(io_read_at(fd, got, 3, 8, "part", &err) == ERR_BAD_FILE && strstr(err.text, "byte 10"));
    (void)close(fd);
    EXPECT(io_read_at(fd, got, 3, 0, "part", &err) == ERR_IO);
}

static void replaces_a_file_or_leaves_the_old_one(void)
{
    struct rlimit before;
    struct err err = {0};
    struct stat about;
    char *text = NULL, big[2000] = "";
    size_t n = 0;

    const char *path = in_scratch("replaced");
    EXPECT(io_write_file(path, "one", 3, &err) == 0 && io_write_file(path, "three", 5, &err) == 0);
    EXPECT(io_read_file(&text, &n, path, 10, &err) == 0 && strcmp(text, "three") == 0);
    free(text);
    EXPECT(stat(path, &about) == 0 && (about.st_mode & 0777) == 0600);
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && getrlimit(RLIMIT_FSIZE, &before) == 0, "limit");
    const struct rlimit small = {.rlim_cur = 1000, .rlim_max = before.rlim_max};
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0, "limit");
    EXPECT(io_write_file(path, big, sizeof big, &err) == ERR_DISK_FULL);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0, "limit");
    EXPECT(io_read_file(&text, &n, path, 10, &err) == 0 && strcmp(text, "three") == 0);
    free(text);
    EXPECT(access(in_scratch("replaced~"), F_OK) != 0);
    EXPECT(io_write_file(in_scratch("no/such/folder"), "x", 1, &err) == ERR_IO);
}

static void knows_what_a_full_disk_is(void)
{
    struct err err = {0};

    EXPECT(IO_FAIL(&err, ENOSPC, "x") == ERR_DISK_FULL &&
           IO_FAIL(&err, EDQUOT, "x") == ERR_DISK_FULL);
    EXPECT(IO_FAIL(&err, EFBIG, "x") == ERR_DISK_FULL && IO_FAIL(&err, EIO, "x") == ERR_IO);
    if (access("/dev/full", W_OK) == 0) {
        const int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
        EXPECT(io_write_all(fd, "x", 1, "/dev/full", &err) == ERR_DISK_FULL);
        EXPECT(strstr(err.text, "/dev/full") != NULL);
        (void)close(fd);
    }
}

static void joins_paths_within_bounds(void)
{
    struct err err = {0};
    char out[8];

    EXPECT(io_join(out, sizeof out, "abc", "def", &err) == 0 && strcmp(out, "abc/def") == 0);
    EXPECT(io_join(out, sizeof out, "abc", "defg", &err) == ERR_IO);
}

typedef int (*open_fn)(int *fd, int root_fd, const char *relative, struct err *err);

/* Both ways of opening beneath a root, openat2 and the walk, refuse the same. */
static void check_beneath(open_fn open_it, int root)
{
    static const char *const refused[] = {
        "",       "/etc/passwd", "..",      "../secret",  "sub/../../secret",
        "sub/..", "link-out",    "link-in", "link-dir/f", "sub/link-up/secret",
        "sub",    "sub/",        "fifo",    "sub/../f",   ".",
    };
    static const char *const absent[] = {"none", "sub/none", "f/x", "none/f"};
    struct err err = {0};
    char c = 0;
    int fd = -1;

    EXPECT(open_it(&fd, root, "f", &err) == 0 && read(fd, &c, 1) == 1 && c == 'f');
    (void)close(fd);
    EXPECT(open_it(&fd, root, "sub//./deep", &err) == 0 && read(fd, &c, 1) == 1 && c == 'd');
    (void)close(fd);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        err.text[0] = '\0';
        const int rc = open_it(&fd, root, refused[i], &err);
        if (rc != ERR_BAD_FILE && !(rc == ERR_NOT_FOUND && strcmp(refused[i], "sub/") == 0)) {
            EXPECT_UNREACHED("it is refused");
            printf("# %s: %d %s\n", refused[i], rc, err.text);
        }
        EXPECT(fd == -1 && err.text[0] != '\0');
    }
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
        const int rc = open_it(&fd, root, absent[i], &err);
        if (rc != ERR_NOT_FOUND || fd != -1) {
            EXPECT_UNREACHED("it is absent");
            printf("# %s: %d %s\n", absent[i], rc, err.text);
        }
    }
}

static void opens_only_regular_files_beneath_a_root(void)
{
    struct err err = {0};
    int root = -1;

    CHECK(mkdir(in_scratch("root"), 0700) == 0 && mkdir(in_scratch("root/sub"), 0700) == 0,
          "mkdir");
    put_text(in_scratch("secret"), "s");
    put_text(in_scratch("root/f"), "f");
    put_text(in_scratch("root/sub/deep"), "d");
    CHECK(symlink("../secret", in_scratch("root/link-out")) == 0, "symlink");
    CHECK(symlink("f", in_scratch("root/link-in")) == 0, "symlink");
    CHECK(symlink(".", in_scratch("root/link-dir")) == 0, "symlink");
    CHECK(symlink("../..", in_scratch("root/sub/link-up")) == 0, "symlink");
    CHECK(mkfifo(in_scratch("root/fifo"), 0600) == 0, "fifo");
    CHECK(io_open_dir(&root, in_scratch("root"), &err) == 0, "%s", err.text);
    check_beneath(io_open_beneath, root);
    check_beneath(io_open_beneath_walking, root);
    (void)close(root);
    EXPECT(io_open_dir(&root, in_scratch("none"), &err) == ERR_NOT_FOUND);
    EXPECT(io_open_dir(&root, in_scratch("secret"), &err) == ERR_BAD_FILE);
}

static void removes_a_tree_but_not_what_links_lead_to(void)
{
    struct err err = {0};

    CHECK(mkdir(in_scratch("tree"), 0700) == 0 && mkdir(in_scratch("tree/a"), 0700) == 0, "mkdir");
    CHECK(mkdir(in_scratch("other"), 0700) == 0, "mkdir");
    put_text(in_scratch("other/kept"), "k");
    put_text(in_scratch("tree/a/file"), "12345");
    put_text(in_scratch("tree/file"), "123");
    CHECK(symlink("../other", in_scratch("tree/link")) == 0, "symlink");
    CHECK(symlink("/nowhere", in_scratch("tree/dangling")) == 0, "symlink");
    uint64_t bytes = 0;
    EXPECT(io_tree_bytes(in_scratch("tree"), &bytes, &err) == 0 && bytes == 8);
    EXPECT(io_tree_bytes(in_scratch("tree/file"), &bytes, &err) == 0 && bytes == 3);
    EXPECT(io_remove_tree(in_scratch("tree"), &err) == 0);
    EXPECT(access(in_scratch("tree"), F_OK) != 0 && access(in_scratch("other/kept"), F_OK) == 0);
    EXPECT(io_remove_tree(in_scratch("tree"), &err) == 0); /* nothing there is no error */
    CHECK(symlink("other", in_scratch("link")) == 0, "symlink");
    EXPECT(io_remove_tree(in_scratch("link"), &err) == 0 &&
           access(in_scratch("other/kept"), F_OK) == 0);
}

static void removes_the_deepest_tree_it_makes(void)
{
    char path[IO_PATH_MAX];
    struct err err = {0};
    size_t n = (size_t)snprintf(path, sizeof path, "%s", in_scratch("deep"));

    CHECK(mkdir(path, 0700) == 0, "mkdir");
    for (int i = 0; i < 60; i++) {
        n += (size_t)snprintf(path + n, sizeof path - n, "/d");
        CHECK(mkdir(path, 0700) == 0, "mkdir");
    }
    EXPECT(io_remove_tree(in_scratch("deep"), &err) == 0 && access(in_scratch("deep"), F_OK) != 0);
}

static void makes_folders_and_lists_names(void)
{
    struct err err = {0};
    struct io_names names;
    uint64_t bytes = 0;
    struct stat about;

    EXPECT(io_make_dir(in_scratch("made"), &err) == 0 &&
           io_make_dir(in_scratch("made"), &err) == 0);
    EXPECT(stat(in_scratch("made"), &about) == 0 && (about.st_mode & 0777) == 0700);
    put_text(in_scratch("made/b"), "");
    put_text(in_scratch("made/.a"), "");
    EXPECT(io_make_dir(in_scratch("made/b"), &err) == ERR_IO);
    EXPECT(io_make_dir(in_scratch("no/parent"), &err) == ERR_IO);
    EXPECT(io_list_dir(&names, in_scratch("made"), &err) == 0 && names.count == 2);
    EXPECT(strcmp(names.at[0]->d_name, ".a") == 0 && strcmp(names.at[1]->d_name, "b") == 0);
    io_names_fini(&names);
    EXPECT(io_list_dir(&names, in_scratch("absent"), &err) == 0 && names.count == 0);
    EXPECT(io_list_dir(&names, in_scratch("made/b"), &err) == ERR_IO && names.count == 0);
    EXPECT(io_free_bytes(scratch, &bytes, &err) == 0 && bytes > 0);
    EXPECT(io_free_bytes(in_scratch("absent"), &bytes, &err) == ERR_IO);
    EXPECT(io_sync_dir(scratch, &err) == 0 && io_sync_dir(in_scratch("absent"), &err) == ERR_IO);
}

/* Vectors of FIPS 180-4. */
static void hashes_as_the_standard_says(void)
{
    struct err err = {0};
    struct sha256 s;
    char hex[SHA256_TEXT], million[1000];
    uint64_t bytes = 0;

    sha256_of("", 0, hex);
    EXPECT(strcmp(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855") == 0);
    sha256_of("abc", 3, hex);
    EXPECT(strcmp(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") == 0);
    memset(million, 'a', sizeof million);
    sha256_begin(&s);
    FILE *f = fopen(in_scratch("million"), "wb");
    CHECK(f != NULL, "no file");
    for (int i = 0; i < 1000; i++) {
        sha256_add(&s, million, sizeof million);
        CHECK(fwrite(million, 1, sizeof million, f) == sizeof million, "no space");
    }
    (void)fclose(f);
    sha256_end(&s, hex);
    EXPECT(strcmp(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0") == 0);
    EXPECT(sha256_file(in_scratch("million"), hex, &bytes, &err) == 0 && bytes == 1000000);
    EXPECT(strcmp(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0") == 0);
    EXPECT(sha256_file(in_scratch("absent"), hex, NULL, &err) == ERR_NOT_FOUND);
    EXPECT(sha256_file(scratch, hex, NULL, &err) == ERR_IO);
    EXPECT(sha256_is_text(hex) && !sha256_is_text("abc") && !sha256_is_text(""));
    hex[0] = 'C';
    EXPECT(!sha256_is_text(hex));
}

static int opens(const char *dir, const char *name)
{
    struct err err = {0};
    int dir_fd = -1, fd = -1;

    CHECK(io_open_dir(&dir_fd, dir, &err) == 0, "%s", err.text);
    const int rc = io_open_beneath(&fd, dir_fd, name, &err);
    if (fd >= 0) {
        (void)close(fd);
    }
    (void)close(dir_fd);
    return rc;
}

static void follows_the_links_of_a_hugging_face_cache_and_no_others(void)
{
    static const char *const dirs[] = {"hub", "hub/blobs", "hub/snapshots", "hub/snapshots/rev",
                                       "hub/other"};
    static const struct {
        const char *name, *target;
        int rc;
    } links[] = {
        {"good", "../../blobs/abc", 0},
        {"gone", "../../blobs/nothing", ERR_NOT_FOUND},
        {"elsewhere", "../../other/abc", ERR_BAD_FILE},
        {"up", "../../blobs/../../secret", ERR_BAD_FILE},
        {"dots", "../../blobs/..", ERR_BAD_FILE},
        {"empty", "../../blobs/", ERR_BAD_FILE},
        {"chain", "../../blobs/link", ERR_BAD_FILE},
        {"absolute", "/etc/passwd", ERR_BAD_FILE},
    };
    struct err err = {0};

    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) {
        CHECK(io_make_dir(in_scratch(dirs[i]), &err) == 0, "%s", err.text);
    }
    put_text(in_scratch("secret"), "s");
    put_text(in_scratch("hub/blobs/abc"), "b");
    put_text(in_scratch("hub/other/abc"), "o");
    CHECK(symlink("../other/abc", in_scratch("hub/blobs/link")) == 0, "symlink");
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "hub/snapshots/rev/%s", links[i].name);
        CHECK(symlink(links[i].target, in_scratch(path)) == 0, "symlink");
        const int rc = opens(in_scratch("hub/snapshots/rev"), links[i].name);
        EXPECT(rc == links[i].rc);
        if (rc != links[i].rc) {
            printf("# %s: %d\n", links[i].name, rc);
        }
    }
}

int main(void)
{
    scratch_make();
    RUN(reads_a_whole_file_up_to_a_cap);
    RUN(reads_exactly_what_is_asked);
    RUN(replaces_a_file_or_leaves_the_old_one);
    RUN(knows_what_a_full_disk_is);
    RUN(joins_paths_within_bounds);
    RUN(opens_only_regular_files_beneath_a_root);
    RUN(removes_a_tree_but_not_what_links_lead_to);
    RUN(removes_the_deepest_tree_it_makes);
    RUN(makes_folders_and_lists_names);
    RUN(hashes_as_the_standard_says);
    RUN(follows_the_links_of_a_hugging_face_cache_and_no_others);
    scratch_remove();
    return tap_done();
}
