/** The class that Churn copies. */
public class Churn0000000 implements Runnable {
    @Override
    public void run() {
        for (int i = 0; i < 30; i++) {
            Churn.sink += first(i);
        }
    }

    static long first(int i) {
        return second(i) + 1;
    }

    static long second(int i) {
        long sum = i;
        for (int j = 0; j < 300; j++) {
            sum = sum * 31 + (sum >>> 3);
        }
        return sum;
    }
}
