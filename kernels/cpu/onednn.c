/* onednn.c - matmul primitives, made once per product and kept in a table of fixed size.
 *
 * The C interface changed between oneDNN 2 and 3: descriptors became opaque. The functions of the
 * first part are the whole difference.
 */
#include "kernels/cpu/onednn.h"

#ifndef HONE_DOUBLE

    #include <dlfcn.h>
    #include <oneapi/dnnl/dnnl.h>
    #include <pthread.h>
    #include <string.h>

    #include "kernels/check.h"
    #ifdef _OPENMP
        #include <omp.h>
    #endif

    #if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t descriptor;
typedef const_dnnl_memory_desc_t descriptor_view;

static bool describe(descriptor *d, const dnnl_dims_t dims, const dnnl_dims_t strides,
                     dnnl_data_type_t type)
{
    return dnnl_memory_desc_create_with_strides(d, 2, dims, type, strides) == dnnl_success;
}

static descriptor_view view_of(const descriptor *d)
{
    return *d;
}

static void forget(descriptor *d)
{
    (void)dnnl_memory_desc_destroy(*d);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0F, 0, dnnl_data_type_undef);
}

static dnnl_status_t describe_matmul(dnnl_primitive_desc_t *pd, const descriptor md[3],
                                     dnnl_engine_t engine, dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(pd, engine, md[0], md[1], NULL, md[2], attr);
}
    #else
typedef dnnl_memory_desc_t descriptor;
typedef const dnnl_memory_desc_t *descriptor_view;

static bool describe(descriptor *d, const dnnl_dims_t dims, const dnnl_dims_t strides,
                     dnnl_data_type_t type)
{
    return dnnl_memory_desc_init_by_strides(d, 2, dims, type, strides) == dnnl_success;
}

static descriptor_view view_of(const descriptor *d)
{
    return d;
}

static void forget(descriptor *d)
{
    (void)d;
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0F);
}

static dnnl_status_t describe_matmul(dnnl_primitive_desc_t *pd, const descriptor md[3],
                                     dnnl_engine_t engine, dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t d;
    const dnnl_status_t rc = dnnl_matmul_desc_init(&d, &md[0], &md[1], NULL, &md[2]);

    return rc != dnnl_success ? rc : dnnl_primitive_desc_create(pd, &d, attr, engine, NULL);
}
    #endif

enum { KEPT = 256, PROBES = 8, ARGS = 4 };

/* A primitive and the memory objects that it is run with. */
struct kept {
    bool used;
    struct onednn_product product;
    dnnl_primitive_t primitive; /* owned; NULL when oneDNN has none for this product */
    dnnl_memory_t memory[ARGS]; /* owned: a, b, c, scratch                           */
    size_t scratch_bytes;
};

static struct {
    pthread_mutex_t lock; /* guards all below, and every use of a kept primitive */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct kept kept[KEPT];
    unsigned turn; /* of replacement when the table is full around an entry */
} onednn = {.lock = PTHREAD_MUTEX_INITIALIZER};

void onednn_hold(const char *isa)
{
    dnnl_cpu_isa_t level = dnnl_cpu_isa_sse41;

    if (strcmp(isa, "v4bf16") == 0) {
        return;
    }
    if (strcmp(isa, "v3") == 0) {
        level = dnnl_cpu_isa_avx2;
    } else if (strcmp(isa, "v4") == 0) {
        level = dnnl_cpu_isa_avx512_core;
    }
    const dnnl_status_t rc = dnnl_set_max_cpu_isa(level);
    CHECK(rc == dnnl_success, "oneDNN was used before it was held to %s: %d", isa, (int)rc);
}

/* oneDNN runs on OpenMP's threads, whose number is a property of the calling thread. A build of ours
 * without OpenMP finds the library that oneDNN brought. */
static void use_threads(int threads)
{
    #ifdef _OPENMP
    if (omp_get_max_threads() != threads) {
        omp_set_num_threads(threads);
    }
    #else
    void (*set)(int) = NULL;
    void *found = dlsym(RTLD_DEFAULT, "omp_set_num_threads");

    memcpy(&set, &found, sizeof(set));
    if (set != NULL) {
        set(threads);
    }
    #endif
}

static dnnl_data_type_t type_of(enum dtype type)
{
    CHECK(type == DTYPE_F32 || type == DTYPE_BF16, "matmul of %s", dtype_name(type));
    return type == DTYPE_F32 ? dnnl_f32 : dnnl_bf16;
}

static bool describe_operands(descriptor md[3], const struct onednn_product *p)
{
    const dnnl_dims_t dims[3] = {{p->M, p->K}, {p->K, p->N}, {p->M, p->N}};
    const dnnl_dims_t a = {p->ta == AS_IS ? p->K : 1, p->ta == AS_IS ? 1 : p->M};
    const dnnl_dims_t b = {p->tb == AS_IS ? p->N : 1, p->tb == AS_IS ? 1 : p->K};
    const dnnl_dims_t c = {p->N, 1};

    return describe(&md[0], dims[0], a, type_of(p->type)) &&
           describe(&md[1], dims[1], b, type_of(p->type)) &&
           describe(&md[2], dims[2], c, type_of(p->out));
}

static dnnl_primitive_attr_t attributes(bool add)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t rc = dnnl_primitive_attr_create(&attr);

    CHECK(rc == dnnl_success, "oneDNN attributes: %d", (int)rc);
    rc = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    CHECK(rc == dnnl_success, "oneDNN scratchpad mode: %d", (int)rc);
    if (add) {
        rc = dnnl_post_ops_create(&ops);
        CHECK(rc == dnnl_success && append_sum(ops) == dnnl_success, "oneDNN sum: %d", (int)rc);
        rc = dnnl_primitive_attr_set_post_ops(attr, ops);
        CHECK(rc == dnnl_success, "oneDNN post operations: %d", (int)rc);
        (void)dnnl_post_ops_destroy(ops);
    }
    return attr;
}

static void make_memory(struct kept *k, int arg, descriptor_view md)
{
    const dnnl_status_t rc =
        dnnl_memory_create(&k->memory[arg], md, onednn.engine, DNNL_MEMORY_NONE);

    CHECK(rc == dnnl_success, "oneDNN memory: %d", (int)rc);
}

/* Fills k for p; k->primitive stays NULL where oneDNN has no implementation. */
static void make(struct kept *k, const struct onednn_product *p)
{
    dnnl_primitive_attr_t attr = attributes(p->add);
    dnnl_primitive_desc_t pd = NULL;
    descriptor md[3];

    *k = (struct kept){.used = true, .product = *p};
    CHECK(describe_operands(md, p), "oneDNN refuses %lld x %lld x %lld", (long long)p->M,
          (long long)p->N, (long long)p->K);
    if (describe_matmul(&pd, md, onednn.engine, attr) == dnnl_success) {
        const descriptor_view scratch =
            dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
        const dnnl_status_t rc = dnnl_primitive_create(&k->primitive, pd);
        CHECK(rc == dnnl_success, "oneDNN primitive: %d", (int)rc);
        for (int i = 0; i < 3; i++) {
            make_memory(k, i, view_of(&md[i]));
        }
        make_memory(k, 3, scratch);
        k->scratch_bytes = dnnl_memory_desc_get_size(scratch);
        (void)dnnl_primitive_desc_destroy(pd);
    }
    for (int i = 0; i < 3; i++) {
        forget(&md[i]);
    }
    (void)dnnl_primitive_attr_destroy(attr);
}

static void unmake(struct kept *k)
{
    for (int i = 0; i < ARGS && k->primitive != NULL; i++) {
        (void)dnnl_memory_destroy(k->memory[i]);
    }
    (void)dnnl_primitive_destroy(k->primitive);
    *k = (struct kept){0};
}

static bool same(const struct onednn_product *a, const struct onednn_product *b)
{
    return a->M == b->M && a->N == b->N && a->K == b->K && a->ta == b->ta && a->tb == b->tb &&
           a->type == b->type && a->out == b->out && a->add == b->add && a->threads == b->threads;
}

static unsigned hash(const struct onednn_product *p)
{
    const uint64_t h = ((uint64_t)p->M * 31 + (uint64_t)p->N) * 1000003U + (uint64_t)p->K * 8191U +
                       (uint64_t)p->ta * 2 + (uint64_t)p->tb * 4 + (uint64_t)p->add * 8 +
                       (uint64_t)p->type * 16 + (uint64_t)p->out * 64;

    return (unsigned)((h * UINT64_C(0x9e3779b97f4a7c15)) >> 40) % KEPT;
}

/* The entry of p, made if need be. Call with the lock held. */
static struct kept *find(const struct onednn_product *p)
{
    const unsigned at = hash(p);

    if (onednn.engine == NULL) {
        CHECK(dnnl_engine_create(&onednn.engine, dnnl_cpu, 0) == dnnl_success &&
                  dnnl_stream_create(&onednn.stream, onednn.engine, dnnl_stream_default_flags) ==
                      dnnl_success,
              "oneDNN has no %s", "CPU engine");
    }
    for (unsigned i = 0; i < PROBES; i++) {
        struct kept *k = &onednn.kept[(at + i) % KEPT];
        if (k->used && same(&k->product, p)) {
            return k;
        }
        if (!k->used) {
            make(k, p);
            return k;
        }
    }
    struct kept *k = &onednn.kept[(at + onednn.turn++ % PROBES) % KEPT];
    unmake(k);
    make(k, p);
    return k;
}

static void run(const struct kept *k, void *const handles[ARGS])
{
    static const int names[ARGS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                    DNNL_ARG_SCRATCHPAD};
    dnnl_exec_arg_t args[ARGS];
    dnnl_status_t rc;

    for (int i = 0; i < ARGS; i++) {
        rc = dnnl_memory_set_data_handle(k->memory[i], handles[i]);
        CHECK(rc == dnnl_success, "oneDNN handle %d: %d", i, (int)rc);
        args[i] = (dnnl_exec_arg_t){names[i], k->memory[i]};
    }
    rc = dnnl_primitive_execute(k->primitive, onednn.stream, ARGS, args);
    CHECK(rc == dnnl_success, "oneDNN matmul: %d", (int)rc);
    rc = dnnl_stream_wait(onednn.stream);
    CHECK(rc == dnnl_success, "oneDNN stream: %d", (int)rc);
}

/* oneDNN's handles are not const: it does not write through those of its sources. */
static void *unconst(const void *p)
{
    void *q;

    memcpy(&q, &p, sizeof(q));
    return q;
}

bool onednn_matmul(const struct onednn_product *p, const struct queue *q, void *c, const void *a,
                   const void *b)
{
    bool may_run;

    use_threads(p->threads);
    (void)pthread_mutex_lock(&onednn.lock);
    const struct kept *k = find(p);
    may_run = k->primitive != NULL && k->scratch_bytes <= q->workspace_bytes;
    if (may_run) {
        void *const handles[ARGS] = {unconst(a), unconst(b), c, q->workspace};
        run(k, handles);
    }
    (void)pthread_mutex_unlock(&onednn.lock);
    return may_run;
}

void onednn_sgemm(const struct onednn_product *p, float *c, const float *a, const float *b)
{
    const int64_t a_row = p->ta == AS_IS ? p->K : p->M, b_row = p->tb == AS_IS ? p->N : p->K;

    use_threads(p->threads);
    const dnnl_status_t rc =
        dnnl_sgemm(p->ta == AS_IS ? 'N' : 'T', p->tb == AS_IS ? 'N' : 'T', p->M, p->N, p->K, 1.0F,
                   a, a_row, b, b_row, p->add ? 1.0F : 0.0F, c, p->N);
    CHECK(rc == dnnl_success, "oneDNN sgemm: %d", (int)rc);
}

size_t onednn_scratch(const struct onednn_product *p)
{
    size_t bytes;

    use_threads(p->threads);
    (void)pthread_mutex_lock(&onednn.lock);
    bytes = find(p)->scratch_bytes;
    (void)pthread_mutex_unlock(&onednn.lock);
    return bytes;
}

#else

void onednn_hold(const char *isa)
{
    (void)isa; /* The double build multiplies by itself. */
}

#endif
