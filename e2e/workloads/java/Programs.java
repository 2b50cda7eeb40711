package corpus;

import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.ToolProvider;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpServerCodec;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.util.CharsetUtil;
import org.apache.lucene.analysis.standard.StandardAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.PhraseQuery;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.store.ByteBuffersDirectory;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.web.servlet.context.ServletWebServerApplicationContext;
import org.springframework.context.annotation.Configuration;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RestController;

/** Real programs, each for some seconds: {@code Programs NAME SECONDS}, in a folder that they may write to. */
public final class Programs {
    private static final String[] WORDS = "a stack is a list of frames each of which has a caller and a return address".split(" ");

    private static long deadline;

    private Programs() {}

    public static void main(String[] arguments) throws Exception {
        deadline = System.nanoTime() + Long.parseLong(arguments[1]) * 1_000_000_000L;
        switch (arguments[0]) {
            case "javac" -> javac();
            case "scala" -> scala();
            case "h2" -> h2();
            case "lucene" -> lucene();
            case "netty" -> netty();
            case "spring" -> spring();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.exit(0);
    }

    private static boolean isOver() {
        return System.nanoTime() >= deadline;
    }

    /** A source with generics, lambdas, switches and strings, for a compiler to work on. */
    private static final class Source extends SimpleJavaFileObject {
        private final String text;

        Source(int number) {
            super(URI.create("string:///Generated" + number + ".java"), Kind.SOURCE);
            StringBuilder methods = new StringBuilder();
            for (int method = 0; method < 40; method++) {
                methods.append("""
                    <T extends Comparable<T>> java.util.Map<T, java.util.List<T>> by%1$d(java.util.List<? extends T> items) {
                        var groups = new java.util.TreeMap<T, java.util.List<T>>();
                        items.stream().filter(item -> item != null).sorted(java.util.Comparator.reverseOrder())
                            .forEach(item -> groups.computeIfAbsent(item, key -> new java.util.ArrayList<>()).add(item));
                        switch (items.size() %% 100) { case 99 -> groups.clear(); case %1$d -> items.size(); default -> groups.size(); }
                        return groups;
                    }
                    String text%1$d(Object o, int n) { return o instanceof String s && n > %1$d ? s + n + by%1$d(java.util.List.of(s)) : "" + o; }
                    """.formatted(method));
            }
            text = "class Generated" + number + " {\n" + methods + "}\n";
        }

        @Override
        public CharSequence getCharContent(boolean ignoreEncodingErrors) {
            return text;
        }
    }

    private static void javac() throws Exception {
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        Path folder = Files.createTempDirectory(Path.of("."), "classes");
        List<JavaFileObject> sources = new ArrayList<>();
        IntStream.range(0, 20).mapToObj(Source::new).forEach(sources::add);
        while (!isOver()) {
            if (!compiler.getTask(null, null, null, List.of("-d", folder.toString()), null, sources).call()) {
                throw new IllegalStateException("javac refuses the sources");
            }
        }
    }

    private static void scala() throws Exception {
        StringBuilder text = new StringBuilder();
        for (int number = 0; number < 20; number++) {
            text.append("""
                sealed trait Tree%1$d[+A]
                case class Leaf%1$d[A](value: A) extends Tree%1$d[A]
                case class Node%1$d[A](left: Tree%1$d[A], right: Tree%1$d[A]) extends Tree%1$d[A]
                object Tree%1$d:
                  def fold[A, B](tree: Tree%1$d[A])(leaf: A => B)(node: (B, B) => B): B = tree match
                    case Leaf%1$d(value) => leaf(value)
                    case Node%1$d(left, right) => node(fold(left)(leaf)(node), fold(right)(leaf)(node))
                  def words(tree: Tree%1$d[String]) = for word <- fold(tree)(List(_))(_ ++ _) if word.nonEmpty yield word.length -> word
                """.formatted(number));
        }
        Path source = Files.writeString(Path.of("Trees.scala"), text);
        Path folder = Files.createTempDirectory(Path.of("."), "classes");
        String[] options = {"-usejavacp", "-d", folder.toString(), source.toString()};
        while (!isOver()) {
            if (dotty.tools.dotc.Main.process(options).hasErrors()) {
                throw new IllegalStateException("Scala's compiler refuses the source");
            }
        }
    }

    private static void h2() throws Exception {
        try (Connection connection = DriverManager.getConnection("jdbc:h2:mem:")) {
            connection.createStatement().execute(
                "create table sales (id int primary key, customer int, product varchar(40), amount decimal(10, 2))");
            Random random = new Random(1);
            try (PreparedStatement insert = connection.prepareStatement("insert into sales values (?, ?, ?, ?)")) {
                for (int id = 0; id < 20_000; id++) {
                    insert.setInt(1, id);
                    insert.setInt(2, random.nextInt(500));
                    insert.setString(3, WORDS[random.nextInt(WORDS.length)]);
                    insert.setDouble(4, random.nextInt(10_000) / 100.0);
                    insert.execute();
                }
            }
            connection.createStatement().execute("create index by_customer on sales (customer)");
            while (!isOver()) {
                String query = "select s.product, count(*), sum(s.amount), max(t.amount) from sales s join sales t "
                    + "on s.customer = t.customer where s.customer = " + random.nextInt(500)
                    + " group by s.product having count(*) > 1 order by 3 desc";
                try (ResultSet rows = connection.createStatement().executeQuery(query)) {
                    while (rows.next()) {
                        rows.getString(1);
                    }
                }
            }
        }
    }

    private static void lucene() throws Exception {
        Random random = new Random(1);
        while (!isOver()) {
            ByteBuffersDirectory directory = new ByteBuffersDirectory();
            try (IndexWriter writer = new IndexWriter(directory, new IndexWriterConfig(new StandardAnalyzer()))) {
                for (int number = 0; number < 2_000; number++) {
                    StringBuilder text = new StringBuilder();
                    for (int word = 0; word < 100; word++) {
                        text.append(WORDS[random.nextInt(WORDS.length)]).append(random.nextInt(20)).append(' ');
                    }
                    Document document = new Document();
                    document.add(new TextField("text", text.toString(), Field.Store.YES));
                    writer.addDocument(document);
                }
            }
            try (DirectoryReader reader = DirectoryReader.open(directory)) {
                IndexSearcher searcher = new IndexSearcher(reader);
                for (int query = 0; query < 2_000; query++) {
                    String first = WORDS[random.nextInt(WORDS.length)] + random.nextInt(20);
                    String second = WORDS[random.nextInt(WORDS.length)] + random.nextInt(20);
                    searcher.search(new BooleanQuery.Builder()
                        .add(new TermQuery(new Term("text", first)), BooleanClause.Occur.SHOULD)
                        .add(new PhraseQuery("text", first, second), BooleanClause.Occur.SHOULD).build(), 10);
                }
            }
        }
    }

    /** Two threads that get pages, until the end. */
    private static void get(int port, String path) throws Exception {
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        Callable<Void> loop = () -> {
            int number = 0;
            do {
                URI page = URI.create("http://127.0.0.1:" + port + path + number++ % 1000);
                HttpResponse<String> answer =
                    client.send(HttpRequest.newBuilder(page).build(), HttpResponse.BodyHandlers.ofString());
                if (answer.statusCode() != 200) {
                    throw new IllegalStateException(page + " has " + answer.statusCode());
                }
            } while (!isOver());
            return null;
        };
        ExecutorService clients = Executors.newFixedThreadPool(2);
        for (Future<Void> ended : clients.invokeAll(List.of(loop, loop))) {
            ended.get();
        }
    }

    private static final class Handler extends SimpleChannelInboundHandler<FullHttpRequest> {
        @Override
        protected void channelRead0(ChannelHandlerContext context, FullHttpRequest request) {
            StringBuilder text = new StringBuilder(request.uri());
            for (String word : WORDS) {
                text.append(' ').append(word.toUpperCase());
            }
            var body = Unpooled.copiedBuffer(text, CharsetUtil.UTF_8);
            var answer = new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, HttpResponseStatus.OK, body);
            answer.headers().setInt(HttpHeaderNames.CONTENT_LENGTH, body.readableBytes());
            context.writeAndFlush(answer);
        }
    }

    private static void netty() throws Exception {
        NioEventLoopGroup loops = new NioEventLoopGroup(2);
        Channel channel = new ServerBootstrap().group(loops).channel(NioServerSocketChannel.class)
            .childHandler(new ChannelInitializer<SocketChannel>() {
                @Override
                protected void initChannel(SocketChannel socket) {
                    socket.pipeline().addLast(new HttpServerCodec(), new HttpObjectAggregator(65536), new Handler());
                }
            }).bind("127.0.0.1", 0).sync().channel();
        get(((InetSocketAddress) channel.localAddress()).getPort(), "/page/");
    }

    /** A service of Spring. */
    @Configuration
    @EnableAutoConfiguration
    @RestController
    public static class Service {
        /** An item, as JSON. */
        @GetMapping("/items/{id}")
        public Map<String, Object> item(@PathVariable("id") int id) {
            return Map.of("id", id, "words", List.of(WORDS), "squares", IntStream.range(0, 50).map(n -> n * n).toArray());
        }
    }

    private static void spring() throws Exception {
        var context = (ServletWebServerApplicationContext) SpringApplication.run(
            Service.class, "--server.port=0", "--server.address=127.0.0.1", "--spring.main.banner-mode=off");
        get(context.getWebServer().getPort(), "/items/");
    }
}
