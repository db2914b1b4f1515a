/* Fill a SlateDB WriteBatch from lists of Python bytes, by the C functions that the binding exports.
 *
 * The library is loaded by the binding and its functions are handed in once, so nothing is linked. UniFFI passes
 * bytes in a buffer of the library: i32 length, big-endian, then the bytes. Only the limited API of Python 3.11 is
 * used: one compiled file serves every later release.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint64_t capacity;
    uint64_t len;
    uint8_t *data;
} RustBuffer;

typedef struct {
    int8_t code;
    RustBuffer error_buf;
} RustCallStatus;

static RustBuffer (*buffer_alloc)(uint64_t size, RustCallStatus *status);
static void (*buffer_free)(RustBuffer buffer, RustCallStatus *status);
static uint64_t (*batch_clone)(uint64_t batch, RustCallStatus *status);
static void (*batch_put)(uint64_t batch, RustBuffer key, RustBuffer value, RustCallStatus *status);
static void (*batch_delete)(uint64_t batch, RustBuffer key, RustCallStatus *status);

/* Copies of at least this size let other threads run meanwhile. */
static Py_ssize_t large_bytes = 64 * 1024;

typedef struct {
    const char *data;
    Py_ssize_t size;
} Field;

static RustBuffer lower(Field field, RustCallStatus *status)
{
    RustBuffer buffer = buffer_alloc((uint64_t)field.size + 4, status);
    if (buffer.data == NULL) /* the status tells why */
        return buffer;
    uint32_t size = (uint32_t)field.size;
    buffer.data[0] = (uint8_t)(size >> 24);
    buffer.data[1] = (uint8_t)(size >> 16);
    buffer.data[2] = (uint8_t)(size >> 8);
    buffer.data[3] = (uint8_t)size;
    memcpy(buffer.data + 4, field.data, (size_t)field.size);
    buffer.len = (uint64_t)field.size + 4;
    return buffer;
}

/* Borrow the octets of a bytes object; -1 with an exception set if it is none, or too long for UniFFI. */
static int field_of(PyObject *object, Field *field)
{
    char *data;
    if (object == NULL || PyBytes_AsStringAndSize(object, &data, &field->size) < 0)
        return -1;
    if (field->size > INT32_MAX - 4) {
        PyErr_SetString(PyExc_OverflowError, "a key or value of 2 GiB or more");
        return -1;
    }
    field->data = data;
    return 0;
}

static int put_row(uint64_t batch, PyObject *row, RustCallStatus *status)
{
    Field key, value;
    if (field_of(PyTuple_GetItem(row, 0), &key) < 0 || field_of(PyTuple_GetItem(row, 1), &value) < 0)
        return -1;
    PyThreadState *released = value.size >= large_bytes ? PyEval_SaveThread() : NULL;
    RustBuffer key_buffer = lower(key, status);
    RustBuffer value_buffer = lower(value, status);
    batch_put(batch_clone(batch, status), key_buffer, value_buffer, status);
    if (released != NULL)
        PyEval_RestoreThread(released);
    return 0;
}

static int delete_row(uint64_t batch, PyObject *row, RustCallStatus *status)
{
    Field key;
    if (field_of(row, &key) < 0)
        return -1;
    batch_delete(batch_clone(batch, status), lower(key, status), status);
    return 0;
}

/* Take the error out of a status: (code, octets of the library's message). */
static PyObject *taken_error(RustCallStatus *status)
{
    RustCallStatus freeing = {0};
    RustBuffer error = status->error_buf;
    PyObject *answer =
        Py_BuildValue("iy#", (int)status->code, (const char *)error.data, (Py_ssize_t)error.len);
    buffer_free(error, &freeing);
    return answer;
}

static PyObject *fill(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    unsigned long long batch;
    PyObject *puts, *deletes;
    if (!PyArg_ParseTuple(arguments, "KO!O!", &batch, &PyList_Type, &puts, &PyList_Type, &deletes))
        return NULL;
    RustCallStatus status = {0};
    for (Py_ssize_t at = 0; status.code == 0 && at < PyList_Size(puts); at++)
        if (put_row(batch, PyList_GetItem(puts, at), &status) < 0)
            return NULL;
    for (Py_ssize_t at = 0; status.code == 0 && at < PyList_Size(deletes); at++)
        if (delete_row(batch, PyList_GetItem(deletes, at), &status) < 0)
            return NULL;
    if (status.code != 0)
        return taken_error(&status);
    Py_RETURN_NONE;
}

static PyObject *use(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    unsigned long long alloc, free, clone, put, delete;
    if (!PyArg_ParseTuple(arguments, "KKKKKn", &alloc, &free, &clone, &put, &delete, &large_bytes))
        return NULL;
    buffer_alloc = (RustBuffer(*)(uint64_t, RustCallStatus *))(uintptr_t)alloc;
    buffer_free = (void (*)(RustBuffer, RustCallStatus *))(uintptr_t)free;
    batch_clone = (uint64_t(*)(uint64_t, RustCallStatus *))(uintptr_t)clone;
    batch_put = (void (*)(uint64_t, RustBuffer, RustBuffer, RustCallStatus *))(uintptr_t)put;
    batch_delete = (void (*)(uint64_t, RustBuffer, RustCallStatus *))(uintptr_t)delete;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"use", use, METH_VARARGS,
     "use(alloc, free, clone, put, delete, large_bytes): take the addresses of the library's functions."},
    {"fill", fill, METH_VARARGS,
     "fill(batch_handle, puts, deletes): append all; give None, or (code, message) of the one that was refused."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_fill", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fill(void)
{
    return PyModule_Create(&definition);
}
