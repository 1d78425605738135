// The network of examples/minimal in C++17: handles that free themselves, errors that are thrown. It prints the losses of minimal.
#include <shoal/shoal.h>

#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>

namespace
{

constexpr int samples = 64, hidden = 32, steps = 300;

constexpr char config[] = R"({
    "train_batch_size": 128, "train_micro_batch_size_per_gpu": 64, "reduction": "exact",
    "optimizer": { "type": "AdamW", "params": { "lr": 0.01, "weight_decay": 0 } } })";

// The library throws nothing; a status becomes an exception on the caller's side.
void check(shoal_status status)
{
    if (status < 0)
        throw std::runtime_error(shoal_error_message());
}

// A handle that its own function destroys: Handle<shoal_engine, shoal_engine_destroy>.
template <auto destroy> struct Destroyer {
    template <class T> void operator()(T *handle) const
    {
        destroy(handle);
    }
};
template <class T, auto destroy> using Handle = std::unique_ptr<T, Destroyer<destroy>>;

shoal_param_spec param(const char *name, shoal_shape shape, shoal_init_kind init, double scale)
{
    shoal_param_spec spec{};
    spec.name = name;
    spec.shape = shape;
    spec.init = init;
    spec.init_b = scale;
    return spec;
}

shoal_input_spec input(const char *name, int64_t size)
{
    shoal_input_spec spec{};
    spec.name = name;
    spec.dtype = SHOAL_F32;
    spec.sample_shape = shoal_shape_1(size);
    return spec;
}

// Callbacks are called from C: they return a status and let no exception out.
shoal_status declare(const void *, shoal_declaration *declaration)
{
    const std::array<shoal_param_spec, 4> params{
        param("in.weight", shoal_shape_2(2, hidden), SHOAL_INIT_NORMAL, 1),
        param("in.bias", shoal_shape_1(hidden), SHOAL_INIT_ZEROS, 0),
        param("out.weight", shoal_shape_2(hidden, 1), SHOAL_INIT_NORMAL, 0.2),
        param("out.bias", shoal_shape_1(1), SHOAL_INIT_ZEROS, 0)};
    for (const shoal_param_spec &spec : params) {
        const shoal_status status = shoal_declare_param(declaration, &spec);
        if (status < 0)
            return status;
    }
    return SHOAL_OK;
}

void forward(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    shoal_linear_args in{}, out{};
    in.bias = shoal_layer_param(layer, 1);
    in.activation = SHOAL_ACTIVATION_GELU;
    out.bias = shoal_layer_param(layer, 3);
    shoal_tensor *x = shoal_tape_input(tape, 0); // [samples, 2]
    x = shoal_linear(tape, x, shoal_layer_param(layer, 0), &in);
    x = shoal_linear(tape, x, shoal_layer_param(layer, 2), &out);
    x = shoal_mse(tape, x, shoal_tape_input(tape, 1));
    shoal_boundary_set(tape, boundary, &x, 1);
}

// Pairs of numbers and their products. `user` of the callback is an object of this type.
struct Products {
    std::array<std::array<float, 2>, samples> x;
    std::array<float, samples> y;

    // A function of (step, micro-batch), never of the rank: any number of ranks sees the same points.
    void draw(int64_t step, int64_t micro)
    {
        uint64_t number = static_cast<uint64_t>(step) * 1000 + static_cast<uint64_t>(micro) + 1;
        for (std::size_t i = 0; i < x.size(); i++) {
            for (float &value : x[i]) {
                number = number * 6364136223846793005u + 1442695040888963407u;
                value = static_cast<float>(number >> 40) / static_cast<float>(1 << 23) - 1;
            }
            y[i] = x[i][0] * x[i][1];
        }
    }
};

shoal_status fill(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    auto &products = *static_cast<Products *>(user);
    products.draw(step, micro);
    batch->data[0] = products.x.data();
    batch->data[1] = products.y.data();
    return SHOAL_OK;
}

double train()
{
    shoal_layer_type type{};
    type.name = "mlp";
    type.declare = declare;
    type.forward = forward;
    const shoal_layer_spec layer{&type, "mlp", nullptr};
    const std::array<shoal_input_spec, 2> inputs{input("x", 2), input("y", 1)};
    shoal_model model{};
    model.name = "product";
    model.layers = &layer;
    model.layer_count = 1;
    model.inputs = inputs.data();
    model.input_count = static_cast<int32_t>(inputs.size());

    const shoal_comm_args world{};
    shoal_group *joined = nullptr;
    check(shoal_comm_init(&world, &joined));
    const Handle<shoal_group, shoal_comm_destroy> group(joined);

    shoal_engine_args args{};
    args.model = &model;
    args.config_text = config;
    args.group = group.get();
    shoal_engine *created = nullptr;
    check(shoal_engine_create(&args, &created));
    const Handle<shoal_engine, shoal_engine_destroy> engine(created); // destroyed before the group

    Products products{};
    shoal_step_info info{};
    for (int i = 0; i < steps; i++) {
        check(shoal_engine_train_batch(engine.get(), fill, &products, &info));
        if (i % 50 == 49 && shoal_engine_rank(engine.get()) == 0)
            std::printf("step %d  loss %.5f\n", i + 1, static_cast<double>(info.loss));
    }
    return static_cast<double>(info.loss);
}

} // namespace

int main()
{
    try {
        return train() < 0.01 ? 0 : 1; // the targets vary by 1/9
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
