/* fuzz_request.c - any line as a request of `hone-train serve`, and its stop strings over itself. */
#include "trainer/serve/request.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/serve/stops.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct serve_request r;
    struct err err = {0};
    int found = 0;

    const int rc = request_parse(&r, (const char *)bytes, size, &err);
    if (rc == 0 && !r.cancel) {
        CHECK((r.prompt != NULL) + (r.ids != NULL) + (r.messages != NULL) == 1, "%s", r.id);
        CHECK(r.n >= 1 && r.n <= REQUEST_CHOICES && r.stops <= REQUEST_STOPS, "n %lld",
              (long long)r.n);
        const size_t certain = stops_certain(r.stop, r.stops, (const char *)bytes, size, &found);
        CHECK(certain <= size && found < r.stops, "%zu of %zu", certain, size);
    } else {
        CHECK(rc == 0 || err.text[0] != '\0', "an error %d without a sentence", rc);
    }
    request_fini(&r);
    return 0;
}
