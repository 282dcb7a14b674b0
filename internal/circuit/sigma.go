// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

// sigma is Σ, the closed vocabulary that circuits are written in. A row is data:
//
//	In, Out   edges, in order:         x[R,n]   ids:i32[rows,k]
//	Weights   arrays of a checkpoint:  w[N,K]   bias?[N]          (? may be absent)
//	Consts    arrays that we compute:  inv_freq[half]
//	States    what outlives a step:    k_pool:paged[...]  state:slot[...]   (! is written)
//	Step      fields of the step block that the op reads
//	Attrs     scalars: eps:float  k:int  act:str(silu,sigmoid)  scale:float=1
//	Zero      expressions over axes and attributes that must be 0
//	Flops     per launch, over axes, attributes and ctx (mean number of visible keys)
//	Touched   elements of the weights that a launch reads, where it is not all of them
//	Extra     further bytes of state that a launch moves, in elements
//
// An axis is a name, bound by the first array that has it, or an expression. R is rows or outs. Output edges get their
// sizes from these patterns: they are the shape rule.
var sigma = signature([]Op{
	{Name: "embed", Step: "tokens", Weights: "w[V,H]", Out: "y[rows,H]", Attrs: "scale:float=1",
		Doc: "y = scale * w[token]", Flops: "R*H", Touched: "R*H"},
	{Name: "rms_norm", In: "x[R,n]", Weights: "w?[group*span]", Out: "y[R,n]", Attrs: "eps:float group:int plus_one:int=0 span:int=1 scale:float=1",
		Zero: "n%(group*span)", Doc: "y = x*rsqrt(mean(x²)+eps) * w (or 1+w) * scale, over each group of x; w spans that many groups", Flops: "4*R*n"},
	{Name: "l2_norm", In: "x[R,n]", Out: "y[R,n]", Attrs: "eps:float group:int scale:float=1",
		Zero: "n%group", Doc: "y = x*rsqrt(sum(x²)+eps)*scale, over each group of x", Flops: "4*R*n"},
	{Name: "gated_norm", In: "x[R,n] z[R,n]", Weights: "w[group]", Out: "y[R,n]", Attrs: "eps:float group:int act:str(silu,sigmoid)",
		Zero: "n%group", Doc: "y = w*rms(x) * act(z), over each group of x", Flops: "9*R*n"},
	{Name: "layer_norm", In: "x[R,n]", Weights: "w?[group] bias?[group]", Out: "y[R,n]", Attrs: "eps:float group:int",
		Zero: "n%group", Doc: "y = (x-mean)*rsqrt(var+eps) * w + bias, over each group of x", Flops: "7*R*n"},
	{Name: "linear", In: "x[R,K]", Weights: "w[N,K] bias?[N]", Out: "y[R,N]", Attrs: "compute:str(f32,q8)=f32",
		Doc: "y = x wᵀ + bias", Flops: "2*R*N*K"},
	{Name: "group_linear", In: "x[R,groups*K]", Weights: "w[groups,N,K]", Out: "y[R,groups*N]", Attrs: "compute:str(f32,q8)=f32",
		Doc: "y = x wᵀ, group by group", Flops: "2*R*groups*N*K"},
	{Name: "group_mul", In: "x[R,groups*K]", Weights: "w[groups,K,N]", Out: "y[R,groups*N]",
		Doc: "y = x w, group by group", Flops: "2*R*groups*N*K"},
	{Name: "add", In: "x[R,n] y[R,n]", Out: "z[R,n]", Doc: "z = x + y", Flops: "R*n"},
	{Name: "glu", In: "g[R,n] u[R,n]", Out: "y[R,n]", Attrs: "act:str(silu,gelu_tanh,silu_then_limit,swiglu_oai) limit:float=0",
		Doc: "y = act(g) * u, with g at most limit and u within ±limit unless it is 0", Flops: "6*R*n"},
	{Name: "act", In: "x[R,n]", Out: "y[R,n]", Attrs: "act:str(silu,gelu,gelu_tanh,relu2)", Doc: "y = act(x)", Flops: "5*R*n"},
	{Name: "gate", In: "x[R,n] g[R,m]", Out: "y[R,n]", Attrs: "act:str(sigmoid,silu,softplus)",
		Zero: "n%m", Doc: "y = x * act(g), each g for n/m consecutive x", Flops: "R*n+4*R*m"},
	{Name: "scale", In: "x[R,n]", Weights: "w?[group]", Out: "y[R,n]", Attrs: "factor:float=1 group:int=1", Zero: "n%group",
		Doc: "y = x * w * factor, over each group of x", Flops: "2*R*n"},
	{Name: "softcap", In: "x[R,n]", Out: "y[R,n]", Attrs: "cap:float", Doc: "y = cap*tanh(x/cap)", Flops: "20*R*n"},
	{Name: "slice", In: "x[R,m]", Out: "y[R,n]", Attrs: "from:int n:int", Doc: "n values of each row", Flops: "0"},
	{Name: "split", In: "x[R,groups*(a+b)]", Out: "y0[R,groups*a] y1[R,groups*b]", Attrs: "groups:int a:int b:int",
		Doc: "per group, the first a values and the next b", Flops: "0"},
	{Name: "join", In: "x0[R,groups*a] x1[R,groups*b]", Out: "y[R,groups*(a+b)]", Attrs: "groups:int=1 a:int b:int",
		Doc: "per group, a values of x0 and then b of x1", Flops: "0"},
	{Name: "rope_angles", Step: "positions", Consts: "inv_freq[half]", Out: "y[rows,2*half]", Attrs: "scale:float=1",
		Doc: "y = [cos(p*f) | sin(p*f)] * scale", Flops: "40*R*half"},
	{Name: "grid_angles", Step: "coords", Consts: "inv_freq[half] axis[half]", Out: "y[rows,2*half]", Attrs: "scale:float=1",
		Doc: "y = [cos(p*f) | sin(p*f)] * scale, p being the row's coordinate along each frequency's axis", Flops: "40*R*half"},
	{Name: "rope", In: "x[rows,heads*head_dim] angles[rows,rot]", Out: "y[rows,heads*head_dim]",
		Attrs: "heads:int head_dim:int rot:int style:str(half,interleaved) offset:int=0",
		Doc:   "rotates dims [offset, offset+rot) of each head", Flops: "3*R*heads*rot"},
	{Name: "position_scale", In: "x[rows,n]", Step: "positions", Out: "y[rows,n]", Attrs: "beta:float period:int",
		Doc: "y = x * (1 + beta*ln(1+floor(p/period)))", Flops: "R*n"},
	{Name: "kv_append", In: "k[rows,kv_heads*head_dim] v[rows,kv_heads*v_dim]", Step: "slots",
		States: "k_pool!:paged[kv_heads*head_dim] v_pool!:paged[kv_heads*v_dim]", Attrs: "kv_heads:int head_dim:int v_dim:int",
		Doc: "writes K and V of each row into its page", Flops: "0", Extra: "R*kv_heads*(head_dim+v_dim)"},
	{Name: "attention", In: "q[rows,heads*head_dim]", Weights: "sinks?[heads]", Step: "positions row_seq block_table",
		States: "k_pool:paged[kv_heads*head_dim] v_pool:paged[kv_heads*v_dim]", Out: "y[rows,heads*v_dim]",
		Attrs: "heads:int kv_heads:int head_dim:int v_dim:int scale:float window:int=0 softcap:float=0", Zero: "heads%kv_heads",
		Doc: "causal grouped-query attention over pages; a sink is a score of no key that takes its share of the weights", Flops: "2*R*ctx*heads*(head_dim+v_dim)", Extra: "seqs*ctx*kv_heads*(head_dim+v_dim)"},
	{Name: "append", In: "k[rows,n]", Step: "slots", States: "pool!:paged[n]", Doc: "writes each row into its page", Flops: "0", Extra: "R*n"},
	{Name: "latent_attention", In: "q[rows,heads*head_dim]", Weights: "sinks?[heads]", Step: "positions row_seq block_table",
		States: "pool:paged[head_dim]", Out: "y[rows,heads*v_dim]", Attrs: "heads:int head_dim:int v_dim:int scale:float window:int=0",
		Doc:   "causal attention of all heads over one vector per token, whose first v_dim values are also the value",
		Flops: "2*R*ctx*heads*(head_dim+v_dim)", Extra: "seqs*ctx*head_dim"},
	{Name: "index", In: "q[rows,heads*head_dim] w[rows,heads]", Step: "positions row_seq block_table", States: "pool:paged[head_dim]",
		Out: "ids:i32[rows,top]", Attrs: "heads:int head_dim:int top:int",
		Doc:   "the top positions up to a row's own of highest Σ w*relu(q k), rising, then -1",
		Flops: "2*R*ctx*heads*(head_dim+1)", Extra: "seqs*ctx*head_dim"},
	{Name: "index_entries", In: "q[rows,heads*head_dim] w[rows,heads]", Step: "positions row_seq block_table", States: "pool:paged[head_dim]",
		Out: "ids:i32[rows,top+tokens*(top+1)*(every-1)]", Attrs: "heads:int head_dim:int every:int top:int tokens:int=0",
		Doc:   "index over entries of every tokens that end at a row or before; with tokens, the tokens of those chosen and of the window that has not ended",
		Flops: "2*R*ctx/every*heads*(head_dim+1)", Extra: "seqs*ctx/every*head_dim"},
	{Name: "sparse_attention", In: "q[rows,heads*head_dim] ids:i32[rows,top]", Weights: "sinks?[heads]", Step: "positions row_seq block_table",
		States: "pool:paged[head_dim]", Out: "y[rows,heads*v_dim]", Attrs: "heads:int head_dim:int v_dim:int top:int scale:float",
		Doc:   "latent attention over the listed positions",
		Flops: "2*R*min(ctx,top)*heads*(head_dim+v_dim)", Extra: "R*min(ctx,top)*head_dim"},
	{Name: "full_attention", In: "q[rows,heads*head_dim] k[rows,heads*head_dim] v[rows,heads*head_dim]", Step: "cu_rows row_seq",
		Out: "y[rows,heads*head_dim]", Attrs: "heads:int head_dim:int scale:float",
		Doc: "each row sees all rows of its sequence in the step", Flops: "4*R*ctx*heads*head_dim"},
	{Name: "router", In: "logits[rows,E]", Weights: "bias?[E] expert_scale?[E]", Out: "ids:i32[rows,k] weights[rows,k]",
		Attrs: "k:int score:str(softmax,sigmoid,sqrt_softplus) softcap:float=0 groups:int=1 top_groups:int=1 renorm:int renorm_eps:float=0 scale:float=1",
		Zero:  "E%groups",
		Doc:   "the k experts of highest score+bias, of the top_groups of groups, and their scores; softmax with renorm is softmax over the chosen",
		Flops: "6*R*E"},
	{Name: "experts", In: "x[rows,H] ids:i32[rows,k] weights[rows,k]", Weights: "gate_up[E,(1+gated)*I,H] down[E,H,I] gate_up_bias?[E,(1+gated)*I] down_bias?[E,H]", Out: "y[rows,H]",
		Attrs: "k:int act:str(silu,gelu_tanh,relu2,silu_then_limit,swiglu_oai) limit:float=0 gated:int=1 identity:int=0 compute:str(f32,q8)=f32",
		Doc:   "y = Σ weights * down(act(gate x) * up x) over the row's experts, or of down(act(up x)) where there is no gate; x itself for the identity experts, which follow the others",
		Flops: "2*(2+gated)*R*k*I*H", Touched: "min(E,R*k)*(2+gated)*I*H"},
	{Name: "conv", In: "x[rows,C]", Weights: "w[C,kernel] bias?[C]", States: "state!:slot[C,kernel-1]", Step: "cu_rows state_slot fresh",
		Out: "y[rows,C]", Attrs: "kernel:int act:str(silu,none)", Doc: "depthwise causal convolution; the state holds the last inputs",
		Flops: "2*R*C*kernel+4*R*C", Extra: "2*seqs*C*(kernel-1)"},
	{Name: "delta_gates", In: "a[rows,h*channels] b[rows,h]", Weights: "a_log[h] dt_bias[h*channels]", Out: "g[rows,h*channels] beta[rows,h]",
		Attrs: "channels:int=1 floor:float=0",
		Doc:   "g = -exp(a_log)*softplus(a+dt_bias), or floor*sigmoid(exp(a_log)*(a+dt_bias)) if floor is not 0; beta = sigmoid(b)", Flops: "12*R*h*channels"},
	{Name: "delta_rule", In: "q[rows,k_heads*k_dim] k[rows,k_heads*k_dim] v[rows,v_heads*v_dim] g[rows,v_heads*channels] beta[rows,v_heads]",
		States: "state!:slot[v_heads,k_dim,v_dim]", Step: "cu_rows state_slot fresh", Out: "y[rows,v_heads*v_dim]",
		Attrs: "k_heads:int v_heads:int k_dim:int v_dim:int channels:int=1", Zero: "v_heads%k_heads k_dim%channels",
		Doc: "S*=exp(g), with one decay for all rows of S or one for each; S += k (beta*(v-Sᵀk))ᵀ; y = Sᵀq", Flops: "7*R*v_heads*k_dim*v_dim", Extra: "2*seqs*v_heads*k_dim*v_dim"},
	{Name: "ssd", In: "xbc[rows,heads*head_dim+2*groups*state_dim] dt[rows,heads]", Weights: "a_log[heads] dt_bias[heads] d[heads]",
		States: "state!:slot[heads,head_dim,state_dim]", Step: "cu_rows state_slot fresh", Out: "y[rows,heads*head_dim]",
		Attrs: "heads:int groups:int head_dim:int state_dim:int", Zero: "heads%groups",
		Doc: "t = softplus(dt+dt_bias); S = exp(-exp(a_log)*t)*S + t*x Bᵀ; y = S C + d*x", Flops: "5*R*heads*head_dim*state_dim", Extra: "2*seqs*heads*head_dim*state_dim"},
	{Name: "compress", In: "kv[rows,series*n] gate[rows,series*n]", Weights: "ape[ratio,series*n]", States: "state!:slot[3*(2*series-1),n]",
		Step: "positions cu_rows state_slot fresh", Out: "y[rows,n]", Attrs: "n:int ratio:int series:int=1",
		Doc:   "in the last row of each window of ratio tokens, Σ softmax(gate+ape) kv over the window, channel by channel, 0 in others; of two series the first is the window's before",
		Flops: "8*R*series*n", Extra: "6*seqs*(2*series-1)*n"},
	{Name: "append_entry", In: "k[rows,n]", Step: "slots positions", States: "pool!:paged[n]", Attrs: "every:int",
		Doc: "writes the rows that end a window of every tokens into their page", Flops: "0", Extra: "R*n"},
	{Name: "repeat", In: "x[R,width]", Out: "y[R,streams*width]", Attrs: "streams:int width:int", Doc: "y = x, streams times", Flops: "0"},
	{Name: "mean", In: "x[R,streams*width]", Out: "y[R,width]", Attrs: "streams:int width:int", Doc: "the mean of a row's streams", Flops: "R*streams*width"},
	{Name: "mhc_mix", In: "x[R,streams*width] m[R,(2+streams)*streams]", Weights: "base[(2+streams)*streams] scale[3]",
		Out: "y[R,width] post[R,streams] comb[R,streams*streams]", Attrs: "streams:int width:int iters:int eps:float",
		Doc:   "a = m*scale+base; y = Σ (sigmoid(a)+eps) x over streams; post = 2*sigmoid(a); comb = softmax(a), made doubly stochastic in iters steps",
		Flops: "2*R*streams*width+8*R*iters*streams*streams"},
	{Name: "mhc_add", In: "x[R,streams*width] d[R,width] post[R,streams] comb[R,streams*streams]", Out: "z[R,streams*width]", Attrs: "streams:int width:int",
		Doc: "z_j = Σ comb_ij x_i + post_j d over streams", Flops: "2*R*(streams+1)*streams*width"},
	{Name: "gather_rows", In: "x[rows,n]", Step: "out_rows", Out: "y[outs,n]", Doc: "y[i] = x[out_rows[i]]", Flops: "0"},
	{Name: "fold_rows", In: "x[rows,n]", Out: "y[outs,fold*n]", Attrs: "fold:int", Doc: "y[i] = rows fold*i to fold*(i+1) of x, one after the other", Flops: "0"},
	{Name: "take_rows", In: "pool[S,n]", Step: "hidden_row", Out: "y[rows,n]", Doc: "y[i] = pool[hidden_row[i]]", Flops: "0"},
	{Name: "put_features", In: "x[rows,n] pool[S,n]", Step: "feature_row", Out: "y[rows,n]", Attrs: "mode:str(replace,add)",
		Doc: "y[i] = pool[feature_row[i]], or that added to x[i]; x[i] where there is none", Flops: "R*n"},
	{Name: "grid_embed", Step: "coords grids row_seq", Weights: "w[P,n]", Out: "y[rows,n]",
		Doc: "a square table of position embeddings, stretched over the row's image: bilinear, corners on corners", Flops: "8*R*n", Touched: "4*R*n"},
})

// LookupOp gives a row of Σ.
func LookupOp(name string) (*Op, bool) {
	op, ok := sigma[name]
	return op, ok
}
