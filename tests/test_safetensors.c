/* test_safetensors.c - good files are read, every kind of damage is refused with a reason. */
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>

#include "tests/scratch.h"
#include "tests/tap.h"
#include "trainer/ckpt/safetensors.h"

enum { DATA = 16 }; /* bytes of data in the files below */

/* A file whose header size field is `claimed`, with the header `json` and `n` bytes of data. */
static void write_parts(uint64_t claimed, const char *json, size_t json_bytes, size_t n)
{
    FILE *f = fopen(in_scratch("w.safetensors"), "wb");

    CHECK(f != NULL, "cannot write");
    for (int i = 0; i < 8; i++) {
        fputc((int)(claimed >> (8 * i) & 0xFF), f);
    }
    fwrite(json, 1, json_bytes, f);
    for (size_t i = 0; i < n; i++) {
        fputc((int)(i & 0xFF), f);
    }
    fclose(f);
}

static int open_parts(struct safetensors **st, const char *json, size_t n, struct err *err)
{
    *err = (struct err){0};
    write_parts(strlen(json), json, strlen(json), n);
    return safetensors_open(st, in_scratch("w.safetensors"), err);
}

static void reads_shape_type_and_bytes_of_a_tensor(void)
{
    struct safetensors *st = NULL;
    struct err err;
    unsigned char bytes[6];

    EXPECT(open_parts(&st,
                      "{\"w\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                      "\"a\\u00e9\\ud83d\\ude00\":{\"shape\":[],\"data_offsets\":[0,4],\"dtype\":"
                      "\"F32\"},\"__metadata__\":{\"format\":\"pt\",\"b\":\"c\"}}   ",
                      DATA, &err) == 0);
    if (st == NULL) {
        printf("# %s\n", err.text);
        return;
    }
    const struct st_tensor *w = safetensors_find(st, "w");
    CHECK(w != NULL, "w is not found");
    EXPECT(w->dtype == ST_BF16 && w->dims == 2 && w->shape[0] == 2 && w->shape[1] == 3);
    EXPECT(st_count(w) == 6 && st_rows(w) == 2 && st_cols(w) == 3 && w->bytes == 12);
    EXPECT(safetensors_read_bytes(w, 2, bytes, 6, &err) == 0 && bytes[0] == 6 && bytes[5] == 11);
    const struct st_tensor *a = safetensors_find(st, "a\xC3\xA9\xF0\x9F\x98\x80");
    EXPECT(a != NULL && a->dims == 0 && st_count(a) == 1 && st_rows(a) == 1 && st_cols(a) == 1);
    EXPECT(safetensors_count(st) == 2 && safetensors_at(st, 0) == a && safetensors_at(st, 1) == w);
    EXPECT(safetensors_find(st, "v") == NULL && safetensors_find(st, "") == NULL);
    EXPECT(strcmp(safetensors_metadata(st, "format"), "pt") == 0);
    EXPECT(safetensors_metadata(st, "none") == NULL);
    safetensors_close(st);
}

static void reads_tensors_without_elements_and_files_without_tensors(void)
{
    struct safetensors *st = NULL;
    struct err err;

    EXPECT(open_parts(&st,
                      "{\"z\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[8,8]},"
                      "\"y\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
                      "\"x\":{\"dtype\":\"U8\",\"shape\":[3,0],\"data_offsets\":[0,0]},"
                      "\"e\":{\"dtype\":\"BOOL\",\"shape\":[1,1,1,1,1,1,1,8],"
                      "\"data_offsets\":[8,16]}}",
                      DATA, &err) == 0);
    if (st != NULL) {
        EXPECT(st_count(safetensors_find(st, "z")) == 0 && safetensors_find(st, "z")->bytes == 0);
        EXPECT(st_rows(safetensors_find(st, "x")) == 3 && st_cols(safetensors_find(st, "x")) == 0);
        EXPECT(safetensors_find(st, "e")->dims == 8 && st_cols(safetensors_find(st, "e")) == 8);
        EXPECT(strcmp(safetensors_at(st, 0)->name, "x") == 0);
        safetensors_close(st);
    }
    EXPECT(open_parts(&st, "{}", 0, &err) == 0);
    EXPECT(st != NULL && safetensors_count(st) == 0 && safetensors_find(st, "w") == NULL);
    safetensors_close(st);
    EXPECT(open_parts(&st, "{\"__metadata__\":{}}", 0, &err) == 0);
    safetensors_close(st);
}

static void knows_every_type_of_the_format(void)
{
    static const char *const names[] = {"BOOL", "U8",  "I8",  "F8_E5M2", "F8_E4M3",
                                        "I16",  "U16", "F16", "BF16",    "I32",
                                        "U32",  "F32", "F64", "I64",     "U64"};
    static const int sizes[] = {1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 8, 8, 8};
    struct safetensors *st = NULL;
    struct err err;
    char json[200];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(json, sizeof json,
                       "{\"w\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,16]}}",
                       names[i], DATA / sizes[i]);
        EXPECT(open_parts(&st, json, DATA, &err) == 0);
        EXPECT(st != NULL && strcmp(st_dtype_name(safetensors_at(st, 0)->dtype), names[i]) == 0);
        safetensors_close(st);
    }
}

/* An entry of a tensor; the header is completed by refuses_damaged_headers. */
#define TENSOR(name, dtype, shape, begin, end)                                                     \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" begin "," end \
    "]}"
#define WHOLE TENSOR("w", "F32", "4", "0", "16")

/* Headers for a file of 16 bytes of data, and what the error must mention. */
static const struct {
    const char *json, *says;
} damaged[] = {
    {"", "begin with {"},
    {"[]", "begin with {"},
    {" {" WHOLE "}", "begin with {"},
    {"null", "begin with {"},
    {"{", "a string expected"},
    {"{" WHOLE, "} expected"},
    {"{" WHOLE "}}", "follows"},
    {"{" WHOLE "} x", "follows"},
    {"{" WHOLE ",}", "a string expected"},
    {"{" WHOLE "," WHOLE "}", "twice"},
    {"{\"w\" " WHOLE "}", ": expected"},
    {"{\"w\":{}}", "lacks"},
    {"{\"w\":[]}", "{ expected"},
    {"{\"w\":null}", "{ expected"},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4]}}", "lacks"},
    {"{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,16]}}", "lacks"},
    {"{\"w\":{\"shape\":[4],\"data_offsets\":[0,16]}}", "lacks"},
    {"{\"w\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
     "twice"},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16],\"x\":1}}",
     "a key that is not"},
    {"{\"w\":{\"dtype\":32,\"shape\":[4],\"data_offsets\":[0,16]}}", "a string expected"},
    {"{" TENSOR("w", "F8", "16", "0", "16") "}", "unknown dtype F8"},
    {"{" TENSOR("w", "f32", "4", "0", "16") "}", "unknown dtype f32"},
    {"{" TENSOR("w", "", "4", "0", "16") "}", "unknown dtype"},
    {"{" TENSOR("w", "F32", "5", "0", "16") "}", "do not hold"},
    {"{" TENSOR("w", "F32", "4", "0", "15") "}", "do not hold"},
    {"{" TENSOR("w", "F32", "5", "0", "20") "}", "which has 16"},
    {"{" TENSOR("w", "F32", "-4", "0", "16") "}", "integer of at least 0"},
    {"{" TENSOR("w", "F32", "4.0", "0", "16") "}", "integer expected"},
    {"{" TENSOR("w", "F32", "4e0", "0", "16") "}", "integer expected"},
    {"{" TENSOR("w", "F32", "04", "0", "16") "}", "begins with 0"},
    {"{" TENSOR("w", "F32", "\"4\"", "0", "16") "}", "integer of at least 0"},
    {"{" TENSOR("w", "F32", "[4]", "0", "16") "}", "integer of at least 0"},
    {"{" TENSOR("w", "F32", "4,", "0", "16") "}", "integer of at least 0"},
    {"{" TENSOR("w", "F32", "1,1,1,1,1,1,1,1,4", "0", "16") "}", "more than 8 dimensions"},
    {"{" TENSOR("w", "F32", "2147483648,2147483648,4", "0", "16") "}", "overflows"},
    {"{" TENSOR("w", "F64", "2305843009213693954", "0", "16") "}", "do not hold"},
    {"{" TENSOR("w", "U8", "4294967296,4294967296,16", "0", "16") "}", "overflows"},
    {"{" TENSOR("w", "F32", "9223372036854775808", "0", "16") "}", "too large"},
    {"{" TENSOR("w", "F32", "99999999999999999999999", "0", "16") "}", "too large"},
    {"{" TENSOR("w", "F32", "4", "16", "0") "}", "before its begin"},
    {"{" TENSOR("w", "F32", "4", "-16", "0") "}", "integer of at least 0"},
    {"{" TENSOR("w", "F32", "4", "0", "18446744073709551616") "}", "too large"},
    {"{" TENSOR("w", "F32", "4", "9223372036854775791", "9223372036854775807") "}", "a hole"},
    {"{" TENSOR("w", "F32", "3", "4", "16") "}", "a hole"},
    {"{" TENSOR("w", "F32", "3", "0", "12") "}", "4 bytes follow"},
    {"{" TENSOR("w", "F32", "2", "0", "8") "," TENSOR("v", "F32", "1", "12", "16") "}", "a hole"},
    {"{" TENSOR("w", "F32", "3", "0", "12") "," TENSOR("v", "F32", "2", "8", "16") "}", "overlap"},
    {"{" TENSOR("w", "F32", "4", "0", "16") "," TENSOR("v", "F32", "4", "0", "16") "}", "overlap"},
    {"{" TENSOR("w", "F32", "4", "0", "16") "," TENSOR("v", "F32", "0", "8", "8") "}", "overlap"},
    {"{" TENSOR("w", "F32", "4", "0", "16") "," TENSOR("v", "F32", "0", "20", "20") "}", "a hole"},
    {"{" TENSOR("w", "F32", "4", "16", "32") "}", "a hole"},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0]}}", "two offsets"},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[]}}", "two offsets"},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,8,16]}}", "two offsets"},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":{}}}", "an array expected"},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,16]}}", "an array expected"},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4,\"data_offsets\":[0,16]}}", "integer of at least 0"},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]", "} expected"},
    {"{\"__metadata__\":{}," WHOLE ",\"__metadata__\":{}}", "twice"},
    {"{\"__metadata__\":{\"a\":\"1\",\"b\":\"2\",\"a\":\"1\"}," WHOLE "}", "a twice"},
    {"{\"__metadata__\":{\"a\":1}," WHOLE "}", "object of strings"},
    {"{\"__metadata__\":{\"a\":{\"b\":{}}}," WHOLE "}", "object of strings"},
    {"{\"__metadata__\":[]," WHOLE "}", "object of strings"},
    {"{\"__metadata__\":null," WHOLE "}", "object of strings"},
    {"{\"__metadata__\":{\"a\"}," WHOLE "}", ": expected"},
    {"{\"__metadata__\":{\"a\":\"b\"" WHOLE "}", "} expected"},
    {"{" TENSOR("\\u0000", "F32", "4", "0", "16") "}", "\\u0000"},
    {"{" TENSOR("\\ud800", "F32", "4", "0", "16") "}", "surrogate"},
    {"{" TENSOR("\\ud800\\u0041", "F32", "4", "0", "16") "}", "surrogate"},
    {"{" TENSOR("\\udc00", "F32", "4", "0", "16") "}", "surrogate"},
    {"{" TENSOR("\\u12", "F32", "4", "0", "16") "}", "four digits"},
    {"{" TENSOR("\\x", "F32", "4", "0", "16") "}", "unknown escape"},
    {"{" TENSOR("a\nb", "F32", "4", "0", "16") "}", "control character"},
    {"{" TENSOR("\xFF", "F32", "4", "0", "16") "}", "UTF-8"},
    {"{" TENSOR("\xC0\x80", "F32", "4", "0", "16") "}", "UTF-8"},
    {"{" TENSOR("\xED\xA0\x80", "F32", "4", "0", "16") "}", "UTF-8"},
    {"{" TENSOR("\xF4\x90\x80\x80", "F32", "4", "0", "16") "}", "UTF-8"},
    {"{" TENSOR("\xE2\x82", "F32", "4", "0", "16") "}", "UTF-8"},
    {"{" TENSOR("\xE0\x80\x80", "F32", "4", "0", "16") "}", "UTF-8"},
    {"{" TENSOR("\xF0\x80\x80\x80", "F32", "4", "0", "16") "}", "UTF-8"},
    {"{\"w", "does not end"},
    {"{\"w\\", "unknown escape"},
    {"{\"w\\u", "four digits"},
};

static void refuses_damaged_headers(void)
{
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        struct safetensors *st = NULL;
        struct err err;
        const int rc = open_parts(&st, damaged[i].json, DATA, &err);
        EXPECT(rc == ERR_BAD_FILE && st == NULL && strchr(err.text, '\n') == NULL);
        if (strstr(err.text, damaged[i].says) == NULL) {
            EXPECT_UNREACHED("the error says what is wrong");
            printf("# %s -> %s\n", damaged[i].json, err.text);
        }
        safetensors_close(st);
    }
}

static void refuses_every_cut_of_a_good_file(void)
{
    const char *json = "{\"__metadata__\":{\"a\":\"b\"}," WHOLE "}";
    struct safetensors *st = NULL;
    struct err err;
    struct stat about;

    EXPECT(open_parts(&st, json, DATA, &err) == 0);
    safetensors_close(st);
    CHECK(stat(in_scratch("w.safetensors"), &about) == 0, "no file");
    for (off_t n = about.st_size - 1; n >= 0; n--) {
        CHECK(truncate(in_scratch("w.safetensors"), n) == 0, "cannot cut");
        EXPECT(safetensors_open(&st, in_scratch("w.safetensors"), &err) == ERR_BAD_FILE);
        EXPECT(st == NULL);
    }
}

/* Claim a header of `claimed` bytes; the error must say that the size is the matter. */
static void expect_no_header(uint64_t claimed)
{
    const char *json = "{" WHOLE "}";
    struct safetensors *st = NULL;
    struct err err = {0};

    write_parts(claimed, json, strlen(json), DATA);
    EXPECT(safetensors_open(&st, in_scratch("w.safetensors"), &err) == ERR_BAD_FILE);
    EXPECT(st == NULL && strstr(err.text, "header should have") != NULL);
}

static void refuses_a_header_size_that_lies(void)
{
    static const uint64_t lies[] = {
        UINT64_MAX,          UINT64_C(1) << 63, (UINT64_C(1) << 63) - 1,
        UINT64_C(100000001), UINT64_MAX - 7,    1000,
    };
    const uint64_t rest = strlen("{" WHOLE "}") + DATA; /* behind the size itself */
    struct safetensors *st = NULL;
    struct err err = {0};

    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        expect_no_header(lies[i]);
    }
    for (uint64_t i = 1; i <= 16; i++) {
        expect_no_header(rest + i);
    }
    for (uint64_t i = 0; i <= rest; i++) {
        const bool is_right = i == rest - DATA;
        write_parts(i, "{" WHOLE "}", rest - DATA, DATA);
        EXPECT(safetensors_open(&st, in_scratch("w.safetensors"), &err) ==
               (is_right ? 0 : ERR_BAD_FILE));
        safetensors_close(st);
    }
}

static void refuses_what_is_no_file(void)
{
    struct safetensors *st = NULL;
    struct err err = {0};

    EXPECT(safetensors_open(&st, "/nowhere/at/all", &err) == ERR_NOT_FOUND);
    EXPECT(safetensors_open(&st, scratch, &err) == ERR_BAD_FILE);
    CHECK(mkfifo(in_scratch("fifo"), 0600) == 0, "no fifo");
    EXPECT(safetensors_open(&st, in_scratch("fifo"), &err) == ERR_BAD_FILE);
    put_text(in_scratch("lfs"), "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
    EXPECT(safetensors_open(&st, in_scratch("lfs"), &err) == ERR_BAD_FILE);
    EXPECT(strstr(err.text, "Git LFS") != NULL);
    EXPECT(st == NULL);
}

static void says_that_a_file_became_shorter(void)
{
    struct safetensors *st = NULL;
    struct err err;
    char bytes[DATA];

    EXPECT(open_parts(&st, "{" WHOLE "}", DATA, &err) == 0);
    CHECK(truncate(in_scratch("w.safetensors"), 70) == 0, "cannot cut");
    EXPECT(safetensors_read_bytes(safetensors_at(st, 0), 0, bytes, DATA, &err) == ERR_BAD_FILE);
    safetensors_close(st);
}

static void opens_a_million_tensors_within_their_size(void)
{
    enum { MANY = 1000000, ENTRY = 80 };
    char *json = malloc((size_t)MANY * ENTRY);
    struct safetensors *st = NULL;
    struct err err = {0};
    char name[32];
    size_t n = 0;

    CHECK(json != NULL, "no memory");
    for (int i = 0; i < MANY; i++) {
        const int k = (int)((int64_t)i * 999983 % MANY); /* not in order of names */
        n += (size_t)sprintf(json + n,
                             "%c\"t%d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                             i == 0 ? '{' : ',', k, i, i + 1);
    }
    json[n++] = '}';
    write_parts(n, json, n, MANY);
    free(json);
    EXPECT(safetensors_open(&st, in_scratch("w.safetensors"), &err) == 0);
    if (st == NULL) {
        printf("# %s\n", err.text);
        return;
    }
    EXPECT(safetensors_count(st) == MANY);
    for (int i = 0; i < MANY; i += 9973) {
        (void)snprintf(name, sizeof name, "t%d", i);
        const struct st_tensor *t = safetensors_find(st, name);
        EXPECT(t != NULL && strcmp(t->name, name) == 0);
    }
    safetensors_close(st);
}

static void opens_the_golden_models(void)
{
    static const char *const files[] = {
        "../shared/golden/gpt2_tied/model.safetensors",
        "../shared/golden/llama_mha_untied/grads_f64.safetensors",
        "../shared/golden/llama_mha_untied/batches.safetensors",
        "../shared/data/models/stories260K/model.safetensors",
        "../shared/data/models/stories260K-bf16/model.safetensors",
    };
    struct safetensors *st = NULL;
    struct err err;

    if (access(files[0], R_OK) != 0) {
        printf("# skip: ../shared is absent\n");
        return;
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        EXPECT(safetensors_open(&st, files[i], &err) == 0);
        EXPECT(st != NULL && safetensors_count(st) > 0);
        safetensors_close(st);
    }
}

int main(void)
{
    scratch_make();
    RUN(reads_shape_type_and_bytes_of_a_tensor);
    RUN(reads_tensors_without_elements_and_files_without_tensors);
    RUN(knows_every_type_of_the_format);
    RUN(refuses_damaged_headers);
    RUN(refuses_every_cut_of_a_good_file);
    RUN(refuses_a_header_size_that_lies);
    RUN(refuses_what_is_no_file);
    RUN(says_that_a_file_became_shorter);
    RUN(opens_a_million_tensors_within_their_size);
    RUN(opens_the_golden_models);
    scratch_remove();
    return tap_done();
}
